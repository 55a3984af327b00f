"""Stages of long tasks: what is verified is kept, shown, and moves the deadline on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.ids import trajectory_id
from schemas.rewards import StageVerified
from schemas.verdicts import StageResult
from services.scheduler.explain import explain
from services.scheduler.snapshot import restore, snapshot

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def stage(task: str, number: int, *, attempt: int = 1, index: int = 0, passed: bool = True) -> StageVerified:
    result = StageResult(
        name=f"s{number}",
        weight=1.0,
        score=float(passed),
        passed=passed,
        snapshot=f"digest-{number}" if passed else None,
    )
    name = trajectory_id(task, attempt, index)
    return StageVerified(trajectory_id=name, task_id=task, attempt=attempt, stage=number, result=result)


def sampled(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.beat(released=(bench.assigned[0].lease_id,))


def test_fifty_stages_may_take_fifty_times_the_verification_deadline(bench: Bench) -> None:
    sampled(bench)
    for number in range(50):
        bench.tick(100.0)
        bench.send(stage("t", number))
    assert bench.phase("t") == "verifying"
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert found["progress"] == [{"sample": 0, "stages": 50, "passed": 50, "snapshot": "digest-49"}]
    assert "50 stages verified" in found["waits_for"][0]
    bench.tick(121.0)
    entry = bench.state.live["t"]
    assert (entry.state, entry.cause, entry.progress) == ("backoff", "timeout", ())


def test_a_stage_counts_once_so_that_repeating_it_buys_no_time(bench: Bench) -> None:
    sampled(bench)
    bench.send(stage("t", 0))
    for _ in range(3):
        bench.now += 39.0
        bench.send(stage("t", 0))
    assert bench.state.meta.counters["duplicate_stage"] == 3
    bench.tick(5.0)
    assert bench.phase("t") == "backoff"


def test_a_failed_stage_keeps_the_last_good_snapshot(bench: Bench) -> None:
    sampled(bench)
    bench.send(stage("t", 0))
    bench.send(stage("t", 1, passed=False))
    bench.send(stage("t", 0, index=1))
    [first, second] = bench.state.live["t"].progress
    assert (first.stages, first.passed, first.snapshot) == (2, 1, "digest-0")
    assert (second.index, second.stages) == (1, 1)
    assert snapshot(restore(snapshot(bench.state))) == snapshot(bench.state)


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (stage("never", 0), "stage_of_unknown_task"),
        (stage("ended", 0), "stage_of_ended_task"),
        (stage("t", 0, attempt=2), "stage_of_other_attempt"),
        (stage("t", 0, index=9), "stage_of_other_attempt"),
    ],
)
def test_stages_of_what_is_not_under_way_are_counted(bench: Bench, event: StageVerified, cause: str) -> None:
    bench.submit("ended", domain="nowhere")
    sampled(bench)
    bench.send(event)
    assert bench.state.meta.counters[cause] == 1
    assert bench.state.live["t"].progress == ()
