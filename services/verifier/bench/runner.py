"""A measured process of Temper's own: a worker's slot and engine, told over pipes what to judge and how often.

Invariant: it is in the benchmark's cgroups before it makes anything, so that all it ever causes is counted there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from services.verifier import engine
from services.verifier.bench import cases, overrun
from services.verifier.frames import Reply, Request, encode
from services.verifier.hand import BOUNDS
from services.verifier.jail import FileEntry, Job, Limits, Slot, probe
from services.verifier.watched import Watched

ALMOST = 1e-9


def judge(slot: Slot, case: cases.Case) -> str:
    """One verdict, from a request's bytes to a reply's; what is wrong with it, if anything is."""
    body = msgspec.msgpack.encode(
        Request(task=case.task, card=case.card, submission=case.answer, answer_limit=engine.ANSWER_LIMIT)
    )
    request = msgspec.msgpack.decode(body, type=Request)
    jail = Watched(slot, BOUNDS)
    with BOUNDS.armed():
        verdict = engine.judge(request.task, request.card, request.submission, jail, request.answer_limit)
    encode(Reply(verdict=verdict, jail_runs=jail.runs))
    if verdict.outcome != "scored" or (verdict.score or 0.0) < 1.0 - ALMOST:
        return f"{case.name}: {verdict.outcome} {verdict.score} {verdict.evidence} {verdict.parts}"
    return ""


def true(slot: Slot) -> str:
    """One run of /bin/true."""
    outcome = slot.run(Job(argv=("/bin/true",)))
    return (
        "" if (outcome.cause, outcome.exit_code) == ("exit", 0) else f"true: {outcome.cause} {outcome.detail}"
    )


def work(slot: Slot, name: str, count: int) -> dict[str, Any]:
    """Do `count` verdicts of a case: the seconds of each, and the first fault."""
    by_name = {case.name: case for case in cases.CASES}
    took, fault = [], ""
    for _ in range(count):
        begun = time.monotonic()
        fault = fault or (true(slot) if name == cases.TRUE else judge(slot, by_name[name]))
        took.append(time.monotonic() - begun)
    return {"took": took, "fault": fault}


def hang(slot: Slot, program: bytes, procs: list[str], count: int) -> dict[str, Any]:
    """Run into the wall limit `count` times: seconds from the limit to the death of the last process of the tree."""
    limits = Limits(wall_s=overrun.WALL_S)
    late, fault = [], ""
    for _ in range(count):
        watch = overrun.Watch([Path(path).parent for path in procs])
        thread = threading.Thread(target=watch.run)
        thread.start()
        outcome = slot.run(
            Job(argv=("/w/hang", "hang"), files={"hang": FileEntry(program, 0o755)}, limits=limits)
        )
        thread.join()
        if outcome.cause != "wall" or outcome.survivors or watch.seen < overrun.TREE:
            fault = f"overrun: {outcome.cause}, {watch.seen} processes seen, {outcome.survivors} left: {outcome.detail}"
            break
        late.append(watch.dead_at - int(outcome.stdout) / 1e9 - overrun.WALL_S)
    return {"took": late, "fault": fault}


def main(argv: list[str]) -> int:
    """`SLOT ROOT PROGRAM PROCS...`; then requests `[case, count]`, one JSON document a line."""
    name, root, program, *procs = argv
    for path in procs:
        Path(path).write_text(str(os.getpid()))
    host = probe()
    with Slot(name, Path(root), host) as slot:
        answer({"isolation": host.isolation})
        for line in sys.stdin.buffer:
            case, count = msgspec.json.decode(line, type=tuple[str, int])
            if case == overrun.NAME:
                answer(hang(slot, Path(program).read_bytes(), procs, count))
            else:
                answer(work(slot, case, count))
    return 0


def answer(document: dict[str, Any]) -> None:
    """One line to the benchmark."""
    sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
