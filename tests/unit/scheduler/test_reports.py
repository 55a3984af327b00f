"""Failures that other schedulers were reported for; `docs/scheduler-reports.md` says which test is for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.cards import Card, Ladder, Retry, Timeouts, VerifierTable
from schemas.run import RunConfig, Sampler
from schemas.tasks import TaskCancelled, TaskSubmitted
from services.runtime.settings import SettingsError
from services.scheduler.policies import Policies, Policy, policies_of
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.summary import figures

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
    """Round robin over groups that are not equally full, although all came at one time and take the same time."""
    counts = {"e": 2, "c": 5, "a": 1, "d": 4, "b": 3}
    bench.policies = Policies(domains=dict.fromkeys(counts, Policy()), group_size=2, eta=10_000)
    for number in range(5):
        for domain, count in counts.items():
            if number < count:
                bench.submit(f"{domain}{number}", domain)
    order = []
    for _ in range(sum(counts.values())):
        bench.beat(slots=1)
        bench.tick()
        order.append(bench.assigned[-1].task.id)
        bench.now += 1.0
        bench.verdicts(order[-1], 1.0, 1.0)
    rounds: list[list[str]] = []
    while order:
        there = [domain for domain, count in counts.items() if count > len(rounds)]
        rounds.append(order[: len(there)])
        assert sorted(name[0] for name in rounds[-1]) == sorted(there), "each that has work once, none twice"
        assert {name[1] for name in rounds[-1]} == {str(len(rounds) - 1)}, "and its tasks as they came"
        order = order[len(there) :]
    assert len(rounds) == 5


def test_the_same_round_robin_comes_of_records_that_were_restored(bench: Bench) -> None:
    """Equal keys are told apart by what is stored, not by the order in which a process happens to hold them."""
    for name in ("b2", "a9", "b1", "a1", "b3", "a2"):
        bench.submit(name, domain=name[0])
    fields = list(snapshot(bench.state).items())
    first, second = restore(dict(fields)), restore(dict(reversed(fields)))
    orders = []
    for state in (first, second):
        bench.state, bench.effects = state, []
        bench.beat(slots=6)
        bench.tick()
        orders.append([assigned.task.id for assigned in bench.assigned])
    assert orders[0] == orders[1] == ["a9", "b2", "a1", "b1", "a2", "b3"]


def test_slots_that_are_freed_for_a_big_task_go_to_it_and_not_back_to_who_had_them(bench: Bench) -> None:
    """Neither to a second try of the very work that made room, nor to small work that came before it or is more urgent."""
    retry = Retry(failures=5, backoff_s=0.0)
    bench.policies = Policies(
        domains={"small": Policy(retry=retry, weight=50.0), "big": Policy(slots=3)}, group_size=2, eta=10_000
    )
    for number in range(6):
        bench.submit(f"s{number}", "small")
    bench.beat(slots=3)
    bench.tick()
    bench.submit("big", "big")
    for number in range(3):
        bench.verdicts(f"s{number}", 0.0, 0.0)  # fails, and is ready again at once
        bench.submit(f"urgent{number}", "small", priority=100)
        assert bench.phase("big") == "ready"
        bench.beat(slots=3)
        bench.tick()
    assert bench.phase("big") == "leased"
    assert len(bench.assigned) == 4


def test_nothing_is_told_as_running_that_no_worker_holds(bench: Bench) -> None:
    for number in range(3):
        bench.submit(f"t{number}")
    bench.tick()

    def told() -> dict[str, float]:
        found = figures(bench.state, bench.policies, bench.now)
        return {name: found[name] for name in ("ready", "leased", "running", "backoff", "leases")}

    assert told() == {"ready": 3.0, "leased": 0.0, "running": 0.0, "backoff": 0.0, "leases": 0.0}
    bench.beat(slots=1)
    bench.tick()
    bench.beat(slots=1, leases=(bench.assigned[0].lease_id,))
    assert told() == {"ready": 2.0, "leased": 0.0, "running": 1.0, "backoff": 0.0, "leases": 1.0}
    bench.tick(31.0)  # nobody has named the lease since
    assert told() == {"ready": 2.0, "leased": 0.0, "running": 0.0, "backoff": 1.0, "leases": 0.0}


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
