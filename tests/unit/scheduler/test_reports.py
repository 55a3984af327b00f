"""Failures that other schedulers were reported for; `docs/scheduler-reports.md` says which test is for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.cards import Card, Ladder, Retry, Timeouts, VerifierTable
from schemas.run import RunConfig, Sampler
from schemas.tasks import TaskCancelled, TaskSubmitted
from services.runtime.settings import SettingsError
from services.scheduler.policies import Policy, policies_of

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def card(lease_s: float) -> Card:
    return Card(
        name="x",
        layer="tool",
        summary="s",
        generator="m:f",
        verifier=VerifierTable(family="code"),
        timeouts=Timeouts(lease_s=lease_s),
    )


def test_a_lease_shorter_than_three_heartbeats_is_refused_at_the_start() -> None:
    config = RunConfig(sampler=Sampler(heartbeat_s=2.0))
    with pytest.raises(SettingsError, match="lease_s = 5 is less than 3 heartbeats") as caught:
        policies_of({"x": card(5.0)}, config)
    assert "\n" not in str(caught.value)
    assert policies_of({"x": card(6.0)}, config).of("x").timeouts.lease_s == 6.0


def test_a_task_of_higher_priority_goes_first_however_late_it_came(bench: Bench) -> None:
    """Priority counts until the last moment: nothing has been fetched ahead by a worker."""
    for number in range(5):
        bench.submit(f"t{number}")
    bench.run(1.0, 1.0)
    bench.now += 1.0
    bench.submit("urgent", priority=50)
    assert bench.run(1.0, 1.0) == "urgent"


def test_no_task_is_bound_to_a_busy_worker_while_another_is_idle(bench: Bench) -> None:
    for number in range(6):
        bench.submit(f"t{number}")
    bench.beat("busy", slots=1)
    bench.tick()
    bench.beat("busy", slots=1, leases=(bench.assigned[0].lease_id,))
    bench.tick()
    assert len(bench.assigned) == 1, "what waits, waits here"
    bench.beat("idle", slots=2)
    bench.tick()
    assert len(bench.assigned) == 3


def test_equal_times_and_keys_are_ordered_all_the_same(bench: Bench) -> None:
    for name in ("b2", "a9", "b1", "a1"):
        bench.submit(name, domain=name[0])
    order = [bench.run(1.0, 1.0) for _ in range(4)]
    assert [name for name in order if name[0] == "a"] == ["a9", "a1"], "as they came"
    assert [name for name in order if name[0] == "b"] == ["b2", "b1"]


def test_a_full_pool_does_not_hold_up_another(bench: Bench) -> None:
    for number in range(3):
        bench.submit(f"s{number}", pool="standard", priority=100)
        bench.submit(f"f{number}", pool="fast")
    bench.beat("w", pool="standard", slots=0)
    bench.beat("f", pool="fast", slots=3)
    bench.tick()
    assert [assigned.pool for assigned in bench.assigned] == ["fast"] * 3


def test_a_task_that_is_cancelled_while_it_waits_for_its_next_try_never_runs_again(bench: Bench) -> None:
    bench.submit("t")
    bench.run(0.0, 0.0)
    assert bench.phase("t") == "backoff"
    bench.send(TaskCancelled(task_id="t"))
    bench.tick(1000.0)
    bench.beat()
    bench.tick()
    assert len(bench.assigned) == 1
    assert bench.phase("t") == "cancelled"


def test_a_parent_completes_although_a_sub_task_was_lost_and_tried_again(bench: Bench) -> None:
    bench.policies.domains["j"] = Policy(
        retry=Retry(infra=3, backoff_s=0.1), ladder=Ladder(steps=(0.5,), join="all", climb=False)
    )
    bench.submit("t", domain="j", difficulty=1.0)
    bench.run(0.0, 0.0)
    [child] = bench.derived()
    bench.beat(slots=1)
    bench.tick()
    bench.tick(31.0)
    assert bench.phase(child.task.id) == "backoff"
    bench.tick(60.0)
    bench.run(1.0, 1.0)
    assert bench.phase("t") == "succeeded"


def test_what_is_repeated_on_demand_has_its_budgets_anew(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=0))
    bench.submit("t")
    bench.run(None, None)
    assert bench.phase("t") == "dead"
    task = bench.assigned[-1].task
    again = TaskSubmitted(task=type(task)(id="u", domain="a", prompt=task.prompt), again="t")
    bench.send(again)
    entry = bench.state.live["u"]
    assert (entry.losses, entry.failures, entry.timeouts, entry.attempt) == (0, 0, 0, 0)
    bench.run(1.0, 1.0)
    assert bench.phase("u") == "succeeded"


def test_any_number_of_drains_spends_no_budget_and_lengthens_no_backoff(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=0, timeouts=0))
    bench.submit("t")
    for number in range(40):
        worker = f"w{number}"
        bench.beat(worker, slots=1)
        bench.tick()
        lease = bench.assigned[-1].lease_id
        bench.beat(worker, leases=(lease,))
        bench.beat(worker, released=(lease,), reason="abandoned", draining=True)
        bench.verdicts("t", None, None)
        bench.tick()
        assert bench.phase("t") == "ready"
    assert bench.state.live["t"].drains == 40


def test_a_worker_that_sees_nothing_of_its_leases_any_more_ends_none_of_another_s(bench: Bench) -> None:
    """Only who names a lease renews it: a worker that came back without its work lets it lapse."""
    bench.submit("t")
    bench.beat()
    bench.tick()
    lease = bench.assigned[0].lease_id
    bench.beat(leases=(lease,))
    for _ in range(4):
        bench.tick(9.0)
        bench.beat(leases=())
    assert bench.phase("t") == "backoff"
    assert bench.state.live["t"].cause == "lost"
