"""What makes a verdict one that may be remembered: no run of it met a limit that its processes share, or had a network."""

from __future__ import annotations

import pytest

from services.verifier.bounds import Bounds
from services.verifier.inside.kit import frame
from services.verifier.jail import Job, Outcome
from services.verifier.watched import Watched

JOB = Job(argv=("true",))


class Played:
    """A jail whose runs end as they are told to."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = iter(outcomes)

    def run(self, job: Job) -> Outcome:
        del job
        return next(self._outcomes)


@pytest.mark.parametrize(
    ("outcome", "settled"),
    [
        (Outcome(cause="exit", exit_code=1), True),
        (Outcome(cause="signal", signal=9), True),
        (Outcome(cause="wall", met=("wall",)), False),
        (Outcome(cause="cpu", met=("cpu",)), False),
        (Outcome(cause="memory", exit_code=0, met=("memory",)), False),
        (Outcome(cause="exit", exit_code=0, met=("pids",)), False),
        (Outcome(cause="exit", exit_code=0, network="allow a:1"), False),
        (Outcome(cause="exit", exit_code=0, report=frame(b"T", 0) + frame(b"D", 0, b"5 700 0 0")), True),
        (Outcome(cause="exit", exit_code=0, report=frame(b"T", 0) + frame(b"D", 0, b"5 20 0 1")), False),
        (Outcome(cause="exit", exit_code=0, report=frame(b"T", 0)), True),
    ],
)
def test_settled(outcome: Outcome, settled: bool) -> None:  # noqa: FBT001 (what is expected)
    calm = Outcome(cause="exit", exit_code=0)
    jail = Watched(Played(calm, outcome, calm), Bounds(60.0, 1 << 40))
    seen = []
    for _ in range(3):
        jail.run(JOB)
        seen.append(jail.settled)
    assert seen == [True, settled, settled]
    assert jail.runs == 3
