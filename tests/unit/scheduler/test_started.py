"""Started work goes before other work, within the bound."""

from __future__ import annotations

from schemas.cards import Deadline, Retry
from services.scheduler.policies import Policy
from tests.unit.scheduler.conftest import Bench
from tests.unit.scheduler.filling import table


def test_started_work_goes_before_shorter_work_that_came_after_it(bench: Bench) -> None:
    bench.policies = table(
        a=Policy(retry=Retry(failures=1), deadline=Deadline(estimate_s=10.0, slack=4.0, cap_s=600.0))
    )
    bench.submit("older", priority=-20)
    bench.now += 1.0
    bench.submit("started")
    bench.beat(slots=1)
    bench.tick()
    assert bench.assigned[-1].task.id == "started"
    bench.verdicts("started", 0.0, 0.0)
    record = bench.state.domain("a")
    record.seconds, record.estimate_s = [0.1], 0.1
    bench.now += 5.0
    bench.submit("short")
    assert bench.state.live["short"].deadline < bench.now + 1.0, (
        "far before what its slack gave the started one"
    )
    bench.beat(slots=0)
    bench.tick(20.0)
    assert bench.phase("started") == "ready"
    assert [bench.run(1.0, 1.0) for _ in range(3)] == ["started", "short", "older"]


def test_started_work_goes_after_what_has_enough_priority(bench: Bench) -> None:
    bench.policies = table(a=Policy(retry=Retry(failures=1), deadline=Deadline(estimate_s=1.0)))
    bench.submit("started", priority=1)
    bench.run(0.0, 0.0)
    bench.submit("urgent", priority=50)
    bench.beat(slots=0)
    bench.tick(20.0)
    assert [bench.run(1.0, 1.0) for _ in range(2)] == ["urgent", "started"], "priority still counts"
