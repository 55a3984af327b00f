"""Four ways to fail, four budgets, none of which pays for another; and none of them is a cancellation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.cards import Retry, Timeouts
from schemas.heartbeats import Released
from schemas.tasks import TaskCancelled
from schemas.verdicts import infra
from services.scheduler.effects import Publish, Revoke
from services.scheduler.policies import Policy
from tests.verdicts import judged

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def begin(bench: Bench, **fields: Any) -> str:
    """Dispatch the next attempt at `t` to a worker that names it; its lease."""
    bench.beat(**fields)
    bench.tick()
    lease = bench.assigned[-1].lease_id
    bench.beat(leases=(lease,), **fields)
    return lease


def counts(bench: Bench) -> tuple[int, int, int, int]:
    entry = bench.state.live["t"]
    return entry.failures, entry.timeouts, entry.losses, entry.drains


def test_each_kind_of_failure_is_booked_under_its_own_name(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(failures=5, infra=5, timeouts=5, backoff_s=0.1))
    bench.submit("t")
    begin(bench)
    bench.verdicts("t", 0.0, 0.0)
    assert counts(bench) == (1, 0, 0, 0)
    bench.tick(60.0)
    lease = begin(bench)
    bench.beat(released=(lease,))
    bench.tick(121.0)
    assert counts(bench) == (1, 1, 0, 0)
    bench.tick(60.0)
    begin(bench)
    bench.tick(31.0)
    assert counts(bench) == (1, 1, 1, 0)
    bench.tick(60.0)
    lease = begin(bench)
    bench.beat(released=(lease,), reason="abandoned", draining=True)
    bench.verdicts("t", None, None)
    assert counts(bench) == (1, 1, 1, 1)
    causes = [e.event.cause for e in bench.effects if isinstance(e, Publish) and e.event.state == "backoff"]
    assert causes == ["failed", "timeout", "lost", "drained"]
    bench.tick(60.0)
    begin(bench)
    assert bench.assigned[-1].attempt == 5


@pytest.mark.parametrize(("spent", "left"), [("timeouts", "infra"), ("infra", "timeouts")])
def test_an_empty_budget_ends_the_task_whatever_is_in_the_other(bench: Bench, spent: str, left: str) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(**{spent: 0, left: 9}))
    bench.submit("t")
    lease = begin(bench)
    if spent == "timeouts":
        bench.beat(released=(lease,))
        bench.tick(121.0)
    else:
        bench.tick(31.0)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause) == ("dead", "timeout" if spent == "timeouts" else "lost")


def test_a_worker_that_renews_for_ever_has_a_last_moment(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(timeouts=Timeouts(lease_s=30.0, attempt_s=100.0))
    bench.submit("t")
    lease = begin(bench)
    for _ in range(9):
        bench.tick(11.0)
        bench.beat(leases=(lease,))
    assert bench.phase("t") == "running"
    effects = bench.tick(1.5)
    assert [e.event.reason for e in effects if isinstance(e, Revoke)] == ["expired"]
    entry = bench.state.live["t"]
    assert (entry.state, entry.timeouts, entry.losses, entry.cause) == ("backoff", 1, 0, "timeout")


def test_a_timeout_is_never_booked_as_a_cancellation_by_the_user(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(
        retry=Retry(timeouts=0), timeouts=Timeouts(lease_s=30.0, attempt_s=20.0)
    )
    bench.submit("t")
    lease = begin(bench)
    effects = bench.tick(21.0)
    assert [e.event.reason for e in effects if isinstance(e, Revoke)] == ["expired"]
    bench.beat(released=(lease,), reason="abandoned")
    bench.verdict("t", 0, None, attempt=1, lease_id=lease)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause) == ("dead", "timeout")
    assert "cancel" not in ended.reason


def test_a_cancellation_spends_no_budget(bench: Bench) -> None:
    bench.submit("t")
    begin(bench)
    effects = bench.send(TaskCancelled(task_id="t", reason="enough"))
    assert [e.event.reason for e in effects if isinstance(e, Revoke)] == ["cancelled"]
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause, ended.reason) == ("cancelled", "cancelled", "enough")
    assert (ended.failures, ended.timeouts, ended.losses) == (0, 0, 0)


def test_a_cancellation_while_verdicts_are_out_takes_the_work_back(bench: Bench) -> None:
    bench.submit("t")
    lease = begin(bench)
    bench.beat(released=(lease,))
    effects = bench.send(TaskCancelled(task_id="t"))
    assert [e.event.lease_id for e in effects if isinstance(e, Revoke)] == [lease]


def kill(bench: Bench, how: str) -> None:
    """One way in which it becomes known that an attempt ran its worker out of memory."""
    lease = begin(bench)
    match how:
        case "sampler":
            given = Released(lease_id=lease, reason="killed", detail="CUDA out of memory")
            bench.beat(given=(given,))
        case "supervisor":
            bench.beat(ended="memory")
        case _:
            for index in (0, 1):
                said = infra("the record was delivered 3 times and no worker survived it")
                bench.send(judged("t", said, bench.assigned[-1].attempt, index, fault="killed"))


@pytest.mark.parametrize("how", ["sampler", "supervisor", "verifier"])
def test_a_task_that_runs_its_workers_out_of_memory_ends_dead_with_that_reason(
    bench: Bench, how: str
) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=50, kills=1, backoff_s=0.1))
    bench.submit("t")
    kill(bench, how)
    assert bench.phase("t") == "backoff"
    bench.tick(60.0)
    kill(bench, how)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause, ended.losses) == ("dead", "killed", 2)
    assert "out of memory 2 times" in ended.reason


def together(bench: Bench, count: int, **fields: Any) -> tuple[str, ...]:
    """Submit `count` tasks `t0`... and have one worker name the leases of all; the leases."""
    for n in range(count):
        bench.submit(f"t{n}")
    bench.beat(**fields)
    bench.tick()
    leases = tuple(assigned.lease_id for assigned in bench.assigned[-count:])
    bench.beat(leases=leases, **fields)
    return leases


def test_a_loss_that_several_share_costs_each_its_part_and_is_looked_into(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=0, kills=0, backoff_s=0.1))
    together(bench, 4)
    effects = bench.beat(ended="memory")
    assert sum(isinstance(effect, Revoke) for effect in effects) == 4
    for n in range(4):
        entry = bench.state.live[f"t{n}"]
        assert (entry.state, entry.kills, entry.losses, entry.spared) == ("backoff", 0, 0, 1)
        assert (entry.suspicion, entry.company) == (0.25, 2)
        assert "one of 4 that were in it, next with 2 at most" in entry.reason
    assert "w" not in bench.state.workers
    bench.tick(60.0)
    bench.beat()
    bench.tick()
    assert {(assigned.attempt, assigned.company) for assigned in bench.assigned[-4:]} == {(2, 2)}
    bench.verdict("t0", 0, 1.0)
    bench.verdict("t0", 1, 1.0)
    assert bench.state.ended["t0"].state == "succeeded"


def test_of_a_worker_that_said_what_is_in_its_engine_only_that_is_to_blame(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=0, backoff_s=0.1))
    together(bench, 4)
    bench.beat(ended="signal")
    bench.tick(60.0)
    bench.beat()
    bench.tick()
    leases = tuple(assigned.lease_id for assigned in bench.assigned[-4:])
    bench.beat(leases=leases, running=leases[:1])
    bench.beat(ended="signal")
    first = bench.assigned[-4].task.id
    ended = bench.state.ended[first]
    assert (ended.state, ended.cause, ended.losses) == ("dead", "lost", 1)
    for assigned in bench.assigned[-3:]:
        entry = bench.state.live[assigned.task.id]
        assert (entry.losses, entry.spared, entry.suspicion, entry.company) == (0, 2, 0.25, 2)
        assert "one of" not in entry.reason


def test_shares_come_to_a_whole_loss_if_workers_keep_no_order(bench: Bench) -> None:
    """Workers that know nothing of suspicion: what is shared again and again still ends."""
    bench.policies.domains["a"] = Policy(retry=Retry(infra=1, kills=0, backoff_s=0.1, backoff_max_s=1.0))
    together(bench, 3)
    for _ in range(6):
        bench.beat(ended="memory")
        bench.tick(60.0)
        bench.beat()
        bench.tick()
        bench.beat(leases=tuple(assigned.lease_id for assigned in bench.assigned[-3:]))
    ends = [bench.state.ended[f"t{n}"] for n in range(3)]
    assert {(end.state, end.cause, end.losses, end.attempt) for end in ends} == {("dead", "killed", 2, 6)}


def test_an_engine_that_fails_is_a_loss_of_those_in_it_although_its_worker_drains(bench: Bench) -> None:
    leases = together(bench, 3)
    given = tuple(Released(lease_id=lease, reason="killed", company=2) for lease in leases[:2])
    waited = Released(lease_id=leases[2], reason="abandoned")
    for _ in range(2):  # said twice, counted once
        bench.beat(given=(*given, waited), draining=True)
    bench.beat(ended="memory")
    assert [bench.state.live[f"t{n}"].spared for n in range(3)] == [1, 1, 0]
    assert [bench.state.live[f"t{n}"].company for n in range(3)] == [1, 1, 0]
    bench.verdicts("t2", None, None)
    assert (bench.phase("t2"), bench.state.live["t2"].drains) == ("backoff", 1)


def test_the_same_end_told_by_two_is_counted_once(bench: Bench) -> None:
    lease = begin_two(bench)
    bench.beat(ended="signal", pid=7)
    before = counts_of(bench)
    bench.beat(ended="memory", pid=7)
    bench.beat(started_at=20.0, pid=8)  # its successor
    bench.beat(ended="signal", pid=7)  # a supervisor that is late
    bench.beat(given=(Released(lease_id=lease, reason="killed", company=1),), started_at=20.0, pid=8)
    bench.verdict("t0", 0, None, attempt=1, lease_id=lease)
    bench.tick(40.0)
    assert counts_of(bench) == before == [(0, 1), (0, 1)]
    assert "w" in bench.state.workers, "the successor is still there"
    assert bench.state.meta.counters["end_of_former_process"] == 1
    assert bench.state.meta.counters["end_of_unknown_worker"] == 1


def test_a_late_report_takes_nothing_from_the_successor(bench: Bench) -> None:
    begin_two(bench)
    bench.beat(started_at=20.0, pid=8)
    bench.tick(60.0)
    leases = [assigned.lease_id for assigned in bench.assigned]
    bench.beat(started_at=20.0, pid=8)
    bench.tick()
    mine = tuple(assigned.lease_id for assigned in bench.assigned if assigned.lease_id not in leases)
    bench.beat(started_at=20.0, pid=8, leases=mine)
    bench.beat(ended="signal", pid=7)
    assert [bench.phase(f"t{n}") for n in range(2)] == ["running", "running"]


def begin_two(bench: Bench) -> str:
    return together(bench, 2, started_at=10.0, pid=7)[0]


def counts_of(bench: Bench) -> list[tuple[int, int]]:
    entries = [bench.state.live[f"t{n}"] for n in range(2)]
    return [(entry.losses, entry.spared) for entry in entries]


def test_a_worker_that_nobody_hears_of_any_more_is_blamed_on_those_it_held(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=2, kills=1, backoff_s=0.1))
    bench.submit("t")
    for n in range(3):
        lease = begin(bench, worker=f"pod-{n}")
        assert bench.assigned[-1].company == min(n, 1)
        bench.beat(worker=f"pod-{n}", leases=(lease,), running=(lease,))
        bench.tick(31.0)
        bench.tick(60.0)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause, ended.losses) == ("dead", "killed", 3)
    assert "ended each of the 3 times" in ended.reason


def test_what_its_worker_survived_is_under_suspicion_no_more(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(failures=3, backoff_s=0.1))
    together(bench, 2)
    bench.beat(ended="signal")
    bench.tick(60.0)
    bench.beat()
    bench.tick()
    again = {assigned.task.id: assigned.lease_id for assigned in bench.assigned[-2:]}
    bench.beat(released=(again["t0"],))
    bench.verdicts("t1", 0.0, 0.0)
    assert [(bench.state.live[f"t{n}"].company, bench.state.live[f"t{n}"].suspicion) for n in (0, 1)] == [
        (0, 0.0),
        (0, 0.0),
    ]


def test_a_worker_that_is_started_again_loses_its_leases_at_once(bench: Bench) -> None:
    bench.policies.domains["a"] = Policy(retry=Retry(infra=1, backoff_s=0.1))
    bench.submit("t")
    begin(bench, started_at=10.0)
    bench.beat(started_at=20.0)
    entry = bench.state.live["t"]
    assert (entry.state, entry.losses) == ("backoff", 1)
    assert "was started again" in entry.reason
    bench.tick(60.0)
    begin(bench, started_at=20.0)
    bench.beat(started_at=30.0)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause) == ("dead", "killed")
    assert "ended each of the 2 times that it was lost" in ended.reason


def test_a_lease_that_the_restarted_worker_names_stays_its_own(bench: Bench) -> None:
    bench.submit("t")
    lease = begin(bench, started_at=10.0)
    bench.beat(started_at=20.0, leases=(lease,))
    assert bench.phase("t") == "running"


def test_a_drain_is_no_loss_even_if_the_worker_is_back_before_the_verdicts(bench: Bench) -> None:
    bench.submit("t", domain="b")
    lease = begin(bench, started_at=10.0)
    bench.beat(released=(lease,), reason="abandoned", draining=True, started_at=10.0)
    bench.beat(started_at=20.0)
    bench.verdicts("t", None, None)
    entry = bench.state.live["t"]
    assert (entry.state, entry.losses, entry.drains, entry.cause) == ("backoff", 0, 1, "drained")


def test_work_that_was_given_up_and_never_judged_is_a_loss_and_no_timeout(bench: Bench) -> None:
    bench.submit("t")
    lease = begin(bench)
    bench.beat(released=(lease,), reason="abandoned")
    bench.tick(121.0)
    entry = bench.state.live["t"]
    assert (entry.losses, entry.timeouts) == (1, 0)


def test_a_wait_ten_times_the_lease_is_one_dispatch(bench: Bench) -> None:
    """Waiting tasks hold no lease: a long backoff must not be taken for a silent worker (Celery's visibility timeout)."""
    bench.policies.domains["a"] = Policy(
        retry=Retry(failures=1, backoff_s=300.0, backoff_max_s=600.0), timeouts=Timeouts(lease_s=30.0)
    )
    bench.submit("t")
    begin(bench)
    bench.verdicts("t", 0.0, 0.0)
    for _ in range(20):
        bench.tick(14.0)
        bench.beat()
        assert len(bench.assigned) == 1
    bench.tick(601.0)
    bench.beat()
    bench.tick()
    assert len(bench.assigned) == 2


def test_a_lost_task_comes_back_after_its_own_lease_whatever_others_may_take(bench: Bench) -> None:
    bench.policies.domains["b"] = Policy(timeouts=Timeouts(lease_s=80_000.0))
    bench.submit("t")
    bench.submit("long", domain="b")
    bench.beat()
    bench.tick()
    bench.tick(31.0)
    assert (bench.phase("t"), bench.phase("long")) == ("backoff", "leased")
