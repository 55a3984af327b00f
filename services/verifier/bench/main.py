"""The benchmark's rounds and its document. Invariant: whatever happens, nothing of it is left: processes, cgroups, slots.

Each round does every case with every system, in an order drawn from the round's number, with as many processes at a time
as there are cores.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from services.runtime.measures import describe_machine, positive
from services.verifier.bench import cases, figures, overrun, peers
from services.verifier.bench.groups import Groups
from services.verifier.engine import jail_limits
from services.verifier.jail import JailUnavailable
from services.verifier.jail.hierarchy import describe, discover
from services.verifier.jail.numbers import reserve
from services.verifier.jail.storage import HOME

OURS = "temper"
SYSTEMS = (OURS, "floor", peers.NSJAIL, "bubblewrap")
ROUNDS = 10
OVERRUNS = 6
"""Jobs run into their wall limit in a round, by one process."""
ANSWER_S = 180.0
PROJECT = Path(__file__).resolve().parents[3]
FAILED = 3


class Runner:
    """One measured process of ours (runner.py)."""

    def __init__(self, name: str, root: Path, groups: Groups, driver: Path) -> None:
        self.name = name
        words = [name, str(root), str(driver), *groups.procs(OURS)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "services.verifier.bench.runner", *words],
            cwd=PROJECT,
            start_new_session=True,  # Ctrl-C is ours alone to answer: we end and remove all
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise JailUnavailable(f"the measured process {name} has no pipes")
        self._into, self._out = self._process.stdin, self._process.stdout

    def ask(self, case: str, count: int) -> None:
        """Send a request."""
        self._into.write(msgspec.json.encode([case, count]) + b"\n")
        self._into.flush()

    def answer(self) -> dict[str, Any]:
        """The next line. Raises JailUnavailable: the process ended, or was ended after ANSWER_S; or a verdict was wrong."""
        late = threading.Timer(ANSWER_S, self._process.kill)
        late.daemon = True
        late.start()
        line = self._out.readline()
        late.cancel()
        if not line:
            raise JailUnavailable(
                f"the measured process {self.name} ended, or took {ANSWER_S:g} s; what it said is above"
            )
        document = dict(msgspec.json.decode(line))
        if document.get("fault"):
            raise JailUnavailable(f"a verdict is not as expected: {document['fault']}")
        return document

    def close(self) -> None:
        """End it, by force if need be."""
        self._into.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._out.close()


class Bench:
    """Everything that stands during a benchmark."""

    def __init__(self, parallel: int) -> None:
        """Raises JailUnavailable."""
        self.parallel = parallel
        self.trees = discover()
        self.driver = peers.floor()
        self.limits = jail_limits(cases.CASES[0].card.limits)
        self.runners: list[Runner] = []
        self.isolation = ""
        self.groups = Groups(self.trees, SYSTEMS)
        self.peers = peers.all_peers(self.groups, self.limits)
        self._numbers = reserve(parallel)
        self._folder = tempfile.TemporaryDirectory(prefix="temper-bench-")

    def __enter__(self) -> Self:
        try:
            for number in self._numbers.numbers:
                name = f"temper-bench{os.getpid()}-{number}"
                self.runners.append(Runner(name, Path(self._folder.name), self.groups, self.driver))
            for runner in self.runners:
                self.isolation = str(runner.answer()["isolation"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self) -> None:
        """End our measured processes."""
        for runner in self.runners:
            runner.close()

    def close(self) -> None:
        """End and remove all."""
        self.stop()
        self.groups.remove()
        self._numbers.close()
        self._folder.cleanup()

    def ours(self, case: str, count: int) -> figures.Cell:
        """Our system doing a case."""
        before, begun = self.groups.cpu_s(OURS), time.monotonic()
        for runner in self.runners:
            runner.ask(case, count)
        took = [value for runner in self.runners for value in runner.answer()["took"]]
        wall_s = time.monotonic() - begun
        return figures.Cell(len(took), wall_s, self.groups.cpu_s(OURS) - before, took)

    def theirs(self, peer: peers.Peer) -> figures.Cell:
        """A peer doing a case."""
        before, begun = self.groups.cpu_s(peer.system), time.monotonic()
        processes = [peers.start(peer, self.groups, self.driver) for _ in range(self.parallel)]
        took = [value for process in processes for value in peers.finish(peer, process)]
        wall_s = time.monotonic() - begun
        return figures.Cell(len(took), wall_s, self.groups.cpu_s(peer.system) - before, took)

    def round(self, number: int) -> dict[tuple[str, str], figures.Cell]:
        """Everything once, in an order of this round's own."""
        counts = {cases.TRUE: cases.TRUE_COUNT} | {case.name: case.count for case in cases.CASES}
        jobs: list[tuple[str, str, peers.Peer | None]] = [(name, OURS, None) for name in counts]
        jobs += [(peer.case, peer.system, peer) for peer in self.peers]
        order = list(jobs)
        random.Random(number).shuffle(order)
        found = {
            (case, system): self.theirs(peer) if peer is not None else self.ours(case, counts[case])
            for case, system, peer in order
        }
        return {(case, system): found[case, system] for case, system, _ in jobs}

    def overruns(self, count: int) -> list[float]:
        """Seconds from a wall limit to the whole tree dead, of `count` jobs."""
        self.runners[0].ask(overrun.NAME, count)
        return list(self.runners[0].answer()["took"])

    def leaks(self) -> dict[str, int]:
        """What our ended processes have left."""
        names = [runner.name for runner in self.runners]
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
        return {
            "cgroups": len(self.groups.below(OURS)),
            "mounts": sum(any(name in line for name in names) for line in lines),
            "folders": sum(len(list(HOME.glob(f"{name}*"))) for name in names)
            + len(list(Path(self._folder.name).iterdir())),
            "processes": len(self.groups.members(OURS)),
        }


def measure(rounds: int, parallel: int) -> dict[str, Any]:
    """The document (DESIGN section 6). Raises JailUnavailable."""
    with Bench(parallel) as bench:
        absent = [name for name in SYSTEMS[1:] if name not in {peer.system for peer in bench.peers}]
        for name in absent:
            say(f"{name} is not installed here, so it is not compared with (apt-get install -y {name})")
        bench.round(-1)  # warms caches, imports and the processes' memory; not counted
        done: list[dict[tuple[str, str], figures.Cell]] = []
        late: list[list[float]] = []
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            done.append(bench.round(number))
            late.append(bench.overruns(OVERRUNS))
        isolation = bench.isolation
        bench.stop()
        left = bench.leaks()
        found = figures.throughput(done, OURS, cases.SAME) | figures.latency(done, OURS)
        found |= {
            f"overrun.{name}_ms": figures.spread(late, share) for name, share in (("p50", 0.5), ("p99", 0.99))
        }
        found |= {f"leaked.{name}": figures.figure([float(count)], "left") for name, count in left.items()}
        machine = describe_machine(parallel=parallel) | {
            "isolation": isolation,
            "cgroups": describe(bench.trees),
        }
        heads = [cases.TRUE, *(case.name for case in cases.CASES), overrun.NAME, "leaked"]
        ordered = dict(sorted(found.items(), key=lambda item: heads.index(item[0].partition(".")[0])))
        return {"bench": "verifier", "machine": machine | {"absent_peers": absent}, "figures": ordered}


def say(text: str) -> None:
    """Progress, to standard error."""
    sys.stderr.write(f"bench verifier: {text}\n")
    sys.stderr.flush()


def main(argv: Sequence[str]) -> int:
    """`bench verifier [--rounds N] [--parallel N]`: the document on standard output."""
    parser = argparse.ArgumentParser(prog="temper bench verifier", allow_abbrev=False)
    parser.add_argument(
        "--rounds", type=positive, default=ROUNDS, help=f"rounds that count (default {ROUNDS})"
    )
    parser.add_argument(
        "--parallel", type=positive, default=os.cpu_count() or 1, help="processes at a time (default: cores)"
    )
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave nothing then either
    try:
        document = measure(arguments.rounds, arguments.parallel)
    except JailUnavailable as error:
        sys.stderr.write(f"temper bench verifier: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    return 0
