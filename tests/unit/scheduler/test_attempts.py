from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from services.scheduler.effects import Derive, Revoke

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def test_a_task_goes_through_all_states_to_success(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    lease = bench.assigned[0].lease_id
    bench.beat(leases=(lease,))
    bench.now += 3.0
    bench.beat(released=(lease,))
    bench.verdicts("t", 0.0, 1.0)
    assert bench.said("t") == ["ready", "leased", "running", "verifying", "succeeded"]
    assert bench.state.ended["t"].score == 0.5
    assert bench.state.meta.accepted == 1
    assert bench.state.domains["a"].estimate_s == 3.0


def test_a_failure_is_tried_again_within_its_budget_and_then_fails(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.verdicts("t", 0.0, 0.5)
    assert bench.phase("t") == "backoff"
    bench.tick(2.0)
    assert [assigned.attempt for assigned in bench.assigned] == [1, 2]
    assert bench.assigned[0].lease_id != bench.assigned[1].lease_id
    bench.verdicts("t", 0.0, 0.0)
    assert bench.phase("t") == "failed"
    assert bench.state.ended["t"].failures == 2


def test_an_evaluation_is_measured_once(bench: Bench) -> None:
    bench.submit("t", purpose="eval", domain="b")
    bench.beat()
    bench.tick()
    effects = bench.verdicts("t", 0.0, 0.0)
    assert bench.phase("t") == "failed"
    assert not any(isinstance(effect, Derive) for effect in effects)
    assert bench.state.meta.accepted == 0


def test_losses_have_their_own_budget_and_end_dead_with_the_cause(bench: Bench) -> None:
    bench.submit("t")
    for attempt in (1, 2, 3):
        bench.beat()
        bench.tick()
        assert bench.assigned[-1].attempt == attempt
        bench.beat(leases=(bench.assigned[-1].lease_id,))
        bench.tick(31.0)
        bench.tick(10.0)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.losses, ended.failures) == ("dead", 3, 0)
    assert "lease expired" in ended.reason
    assert sum(isinstance(effect, Revoke) for effect in bench.effects) == 3


def test_infra_verdicts_are_a_loss_and_no_failure(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.verdicts("t", None, 1.0)
    entry = bench.state.live["t"]
    assert (entry.state, entry.losses, entry.failures) == ("backoff", 1, 0)
    assert bench.state.meta.accepted == 0


def test_a_late_verdict_of_an_expired_lease_changes_nothing(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    old = bench.assigned[0]
    bench.tick(31.0)
    bench.beat()
    bench.tick(2.0)
    bench.verdict("t", 0, 1.0, attempt=1, lease_id=old.lease_id)
    assert bench.state.live["t"].results == ()
    assert bench.state.meta.counters["verdict_of_other_attempt"] == 1


def test_a_verdict_under_another_lease_changes_nothing(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.verdict("t", 0, 1.0, lease_id="forged")
    assert bench.state.live["t"].results == ()


@pytest.mark.parametrize(
    ("task", "index", "cause"),
    [
        ("t", 0, "duplicate_verdict"),
        ("t", 7, "verdict_out_of_range"),
        ("never", 0, "verdict_of_unknown_task"),
    ],
)
def test_illegal_verdicts_are_counted(bench: Bench, task: str, index: int, cause: str) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.verdict("t", 0, 1.0)
    bench.verdict(task, index, 0.0)
    assert bench.state.meta.counters[cause] == 1


def test_missing_verdicts_end_the_attempt_by_what_is_there(bench: Bench) -> None:
    bench.submit("t", group_size=3)
    bench.beat()
    bench.tick()
    bench.verdicts("t", 1.0, 0.0)
    bench.beat(released=(bench.assigned[0].lease_id,))
    bench.tick(121.0)
    assert bench.phase("t") == "succeeded"
    assert bench.state.meta.accepted == 0, "the trainer never gets an incomplete group"


def test_a_failing_task_is_replaced_by_simpler_ones_down_to_the_last_rung(bench: Bench) -> None:
    bench.submit("t", domain="b", batch="mine", difficulty=1.0)
    bench.beat()
    bench.tick()
    children = [effect for effect in bench.verdicts("t", 0.0, 0.0) if isinstance(effect, Derive)]
    assert bench.phase("t") == "degraded"
    assert [(child.difficulty, child.level, child.index) for child in children] == [(0.5, 1, 0), (0.5, 1, 1)]
    assert bench.state.ended["t"].children == tuple(child.child_id for child in children)
    bench.now += 50.0
    bench.submit("c", domain="b", parent="t", level=1)
    assert bench.state.live["c"].eligible_at == 1000.0, "a sub-task keeps its parent's place in time"
    bench.submit("last", domain="b", level=2)
    bench.beat()
    bench.tick()
    bench.verdicts("last", 0.0, 0.0)
    assert bench.phase("last") == "failed"


def test_a_drain_costs_no_budget(bench: Bench) -> None:
    bench.submit("t", domain="b")
    bench.beat()
    bench.tick()
    lease = bench.assigned[0].lease_id
    bench.beat(leases=(lease,))
    bench.beat(released=(lease,), reason="abandoned", draining=True)
    bench.verdicts("t", None, None)
    entry = bench.state.live["t"]
    assert (entry.state, entry.losses, entry.drains) == ("backoff", 0, 1)
    bench.beat("other")
    bench.tick()
    assert bench.assigned[-1].attempt == 2


def test_verdicts_may_overtake_the_heartbeat_that_gives_the_lease_back(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.verdicts("t", 1.0, 1.0)
    bench.beat(released=(bench.assigned[0].lease_id,))
    assert bench.phase("t") == "succeeded"
    assert bench.state.meta.counters["heartbeat_of_other_lease"] == 1
