"""Runs the in-jail driver and reads its report. Invariant: only well-formed frames with expected ids count, each once.

Time is counted as it was had: the wall limit of a card bounds wall time less what the driver and the candidate waited for a
processor, and the jail's own wall limit is `SLACK` times as long. When that comes first because others held the processors,
the outcome is `infra`, so that a busy machine never fails an honest answer.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.verifier.families import prepared
from services.verifier.jail import FileEntry, Jail, Job, Limits, Outcome

ENV = {"PYTHONHASHSEED": "0"}
CAP = 16_384
KINDS = frozenset("BSVENTXLWDOPF")
SLACK = 3
"""Wall time a job may take, in its card's wall limits."""
USED = 0.9
"""Share of a wall limit that the driver gives out, so that it ends before it is ended."""
SHARES = 8
"""The smallest part of a wall limit that a case with a jail of its own gets is one of so many: it has to start, too."""
LAST_WORDS = 4
"""How many there are: milliseconds waited and used, then late and idle, 0 or 1."""
PROOF = 0.5
"""Share of the time missing that others must have had for the machine to be at fault."""


@dataclass(frozen=True, slots=True)
class Record:
    """What the driver said of one case: a kind of `driver.py` and its payload."""

    kind: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """`built`: the candidate compiled; `fault`: why not; `records`: case id -> its only record; `cause`: how the run ended."""

    built: bool
    fault: str
    records: dict[int, Record]
    cause: str


def jails(cases: int) -> int:
    """Wall limits that `cases` jails may take together, where each case has its own: see `share`."""
    return -(-cases // SHARES)


def share(limits: Limits, cases: int) -> Limits:
    """Limits of one of `cases` jails: its part of the card's wall limit, but enough to start in."""
    return replace(limits, wall_s=limits.wall_s / min(max(cases, 1), SHARES))


def block(content: bytes) -> bytes:
    """One length-prefixed piece of an order (kit.py, `read_block`)."""
    return len(content).to_bytes(4, "big") + content


def head(count: int, limits: Limits, settings: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What every order holds: how many cases, and their bounds in seconds."""
    return {
        "count": count,
        "cap": CAP,
        "share": settings.get("isolate") == "none",
        "case_s": float(settings.get("case_s", limits.wall_s / 2)),
        "case_cpu_s": float(settings.get("case_cpu_s", limits.cpu_s / 4)),
        "total_s": limits.wall_s * USED,
        "hard_s": limits.wall_s * SLACK * USED,
        **more,
    }


def packed(order: dict[str, Any], cases: Sequence[Any]) -> bytes:
    """An order and then each case by itself, so that who reads one does not hold another."""
    # Format 2 reads the same in every Python, whatever made it.
    return b"".join(block(marshal.dumps(each, 2)) for each in (order, *cases))


def order(kind: str, cases: Sequence[Any], limits: Limits, settings: dict[str, Any], **more: Any) -> bytes:
    """The driver's instructions."""
    return packed(head(len(cases), limits, settings, kind=kind, **more), cases)


def run(jail: Jail, answer: str, instructions: bytes, limits: Limits) -> Outcome:
    """One jail run of the driver over the candidate's text; `infra` when the machine was too busy to tell."""
    names = ("kit", "driver", "cad")
    return trusted(jail, names, "driver", instructions, limits, {"answer.py": FileEntry(answer.encode())})


def trusted(
    jail: Jail,
    names: Sequence[str],
    main: str,
    instructions: bytes,
    limits: Limits,
    files: Mapping[str, FileEntry],
    more: Mapping[str, FileEntry] | None = None,
) -> Outcome:
    """One jail run of a trusted program that reports in frames; `infra` when the machine was too busy to tell."""
    outcome = jail.run(
        Job(
            argv=prepared.argv(main),
            stdin=instructions,
            files=files,
            trusted={**prepared.programs(*names), **(more or {})},
            env=ENV,
            limits=replace(limits, wall_s=limits.wall_s * SLACK),
            report=True,
        )
    )
    busy = starved(outcome, limits)
    return replace(outcome, cause="infra", detail=busy) if busy else outcome


def starved(outcome: Outcome, limits: Limits) -> str:
    """Why a run says nothing about the candidate, because others had the processors; empty if it does say something.

    The kernel counts how long a process was ready and had no processor. A candidate could make itself wait by many processes
    of its own; what those used is in the job's CPU time, and is taken off.
    """
    made = frames(outcome.report)
    if outcome.cause == "exit" and outcome.exit_code and not made:
        # The candidate has not run yet, so this is no doing of its own.
        said = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"the driver failed before the answer ran: {said[-1] if said else 'nothing said'}"
    if outcome.cause == "wall" and not made:
        return "the machine was too busy: the driver did not get to start"
    words = last_words(made)
    if len(words) != LAST_WORDS or words[2] != b"1":
        return ""
    waited_s, known_s = (int(word) / 1000 for word in words[:2])
    others_s = waited_s - max(0.0, outcome.cpu_s - known_s)
    if others_s < PROOF * limits.wall_s * (SLACK - 1) * USED:
        return ""
    return f"the machine was too busy: {others_s:.1f} s without a processor in {outcome.wall_s:.1f} s"


def idled(report: bytes) -> bool:
    """Whether a case was ended for its time while it waited: for processes of its own, perhaps, that got no processor.

    What waits for a processor itself is not billed for it, but nothing tells who a process waits for.
    """
    words = last_words(frames(report))
    return len(words) == LAST_WORDS and words[3] == b"1"


def last_words(made: list[tuple[str, int, bytes]]) -> list[bytes]:
    """What the driver said at its end (kit.py, `Clock.last_words`); nothing, if not just once."""
    words = [payload.split() for kind, _, payload in made if kind == "D"]
    return words[0] if len(words) == 1 else []


def frames(report: bytes) -> list[tuple[str, int, bytes]]:
    """The complete frames at the head of `report`; reading stops at the first malformed one."""
    found = []
    at = 0
    while at + 9 <= len(report):
        kind = chr(report[at])
        case = int.from_bytes(report[at + 1 : at + 5], "big")
        size = int.from_bytes(report[at + 5 : at + 9], "big")
        if kind not in KINDS or at + 9 + size > len(report):
            break
        found.append((kind, case, report[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


def read(outcome: Outcome, cases: int) -> Report:
    """The report of an outcome that is not `infra`: a case named twice or not expected has no record."""
    built, fault = False, ""
    records: dict[int, Record] = {}
    doubled: set[int] = set()
    for kind, case, payload in frames(outcome.report):
        if kind == "B":
            built = True
        elif kind == "S":
            fault = payload.decode("utf-8", "replace")
        elif kind == "D":
            continue
        elif case in records:
            doubled.add(case)
        else:
            records[case] = Record(kind, payload)
    kept = {case: record for case, record in records.items() if case < cases and case not in doubled}
    return Report(built=built and not fault, fault=fault, records=kept if built else {}, cause=ended(outcome))


def ended(outcome: Outcome) -> str:
    """How a run ended, in two words without a figure that varies."""
    if outcome.cause == "exit":
        return f"exit {outcome.exit_code}"
    if outcome.cause == "signal":
        return f"signal {outcome.signal}"
    return outcome.cause


def said(record: Record | None, cause: str) -> str:
    """A record that is no value, in words."""
    if record is None:
        return f"no answer ({cause})"
    name = record.payload.decode("utf-8", "replace")
    return {
        "E": f"raised {name}",
        "N": f"returned no plain data ({name})",
        "T": "ran out of time",
        "L": "answered too much",
        "W": "ran out of time",
    }.get(record.kind, "died without an answer")
