"""Room in a pool: big tasks, tokens, verifiers, drains."""

from __future__ import annotations

from schemas.tasks import (
    DomainDrained,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    Sampling,
    Task,
)
from services.scheduler.cohorts import never_fits
from services.scheduler.effects import Revoke
from services.scheduler.policies import Policies, Policy
from services.scheduler.quotas import free_slots
from tests.unit.scheduler.conftest import Bench
from tests.unit.scheduler.filling import fill, finish, held, table


def test_a_big_task_holds_its_pool_and_no_other(bench: Bench) -> None:
    bench.policies = table(a=Policy(slots=3, weight=1000.0), b=Policy(), c=Policy())
    fill(bench, "b", 20)
    bench.beat(slots=4)
    bench.beat("other", slots=2, pool="fast")
    bench.tick()
    assert held(bench) == {"b": 4}
    fill(bench, "a", 1)
    fill(bench, "c", 9, pool="fast")
    for freed in (1, 2):
        finish(bench, "b", 1)
        bench.beat(slots=4)
        bench.tick()
        assert held(bench) == {"b": 4 - freed, "c": 2}, "what is released is held for a"
        assert bench.state.meta.reserved == {"standard": "a0"}
    finish(bench, "b", 1)
    bench.tick()
    assert held(bench) == {"a": 3, "b": 1, "c": 2}
    assert bench.state.meta.reserved == {}
    assert free_slots(bench.state, bench.policies, "standard", bench.now) == 0


def test_slots_are_not_held_for_a_task_that_cannot_go_anyway(bench: Bench) -> None:
    bench.policies = table(a=Policy(slots=3, weight=1000.0), b=Policy())
    fill(bench, "b", 20)
    bench.beat(slots=4)
    bench.tick()
    fill(bench, "a", 1)
    finish(bench, "b", 1)
    bench.tick()
    assert bench.state.meta.reserved == {"standard": "a0"}
    bench.beat(slots=2)
    finish(bench, "b", 2)
    bench.tick()
    assert held(bench) == {"b": 2}, "two slots will never be three: others go on"
    assert "a0" in bench.state.live


def test_tokens_bound_what_a_pool_takes(bench: Bench) -> None:
    bench.policies = table(a=Policy(sampling=Sampling(max_tokens=100)))
    fill(bench, "a", 5)
    bench.beat(slots=8, tokens=450)
    bench.tick()
    assert held(bench) == {"a": 2}, "a group is 2 x 100 tokens and a prompt of 1, and 450 are there"
    bench.submit("huge", "a", priority=100, sampling=Sampling(max_tokens=10_000))
    finish(bench, "a", 2)
    bench.beat(slots=8, tokens=450)
    bench.tick()
    assert (bench.phase("a2"), bench.phase("huge")) == ("leased", "ready"), "a2 was waited for"
    finish(bench, "a", 1)
    bench.beat(slots=8, tokens=450)
    bench.tick()
    assert bench.phase("huge") == "leased", "alone it is let through: waiting longer would not help"
    assert held(bench) == {"a": 1}
    bench.beat("more", slots=1)
    bench.tick()
    assert held(bench) == {"a": 3}, "a worker without a limit lifts the pool's"


def test_verifiers_bound_what_is_under_way(bench: Bench) -> None:
    bench.policies = Policies(
        domains={"a": Policy()}, group_size=2, eta=10_000, ready_cap=1000, verify_backlog=3
    )
    fill(bench, "a", 20)
    bench.beat("v", service="verifier", pool="", slots=2)
    bench.beat(slots=20)
    bench.tick()
    assert bench.state.members == 6
    leases = tuple(assigned.lease_id for assigned in bench.assigned)
    bench.beat(slots=20, released=leases)
    bench.tick()
    assert len(bench.assigned) == 3, "samples that are out wait for their verdicts, and count"
    bench.verdicts(bench.assigned[0].task.id, 1.0, 0.0)
    bench.tick()
    assert len(bench.assigned) == 4


def test_what_never_fits_is_rejected_with_a_line(bench: Bench) -> None:
    bench.policies = Policies(
        domains={
            "a": Policy(nominal=2, slots=3),
            "b": Policy(slots=3),
            "c": Policy(nominal=1, borrow=1, cohort="x", slots=3),
            "d": Policy(nominal=9, lend=0, cohort="x", slots=9),
        },
        group_size=2,
        pool_slots={"fast": 2},
        pool_tokens={"standard": 1000},
    )
    bench.submit("t", "a")
    assert bench.phase("t") == "rejected"
    assert "never gives more than 2" in bench.state.ended["t"].reason
    assert bench.state.ended["t"].cause == "never_fits"
    bench.submit("u", "b", pool="fast")
    assert "pool fast has 2" in bench.state.ended["u"].reason
    bench.submit("v", "c")
    assert "never gives more than 1" in bench.state.ended["v"].reason, "d lends nothing"
    bench.submit("w", "b", sampling=Sampling(max_tokens=501))
    assert "1003 tokens" in bench.state.ended["w"].reason, "the prompt is one of them"
    task = Task(id="x", domain="d", prompt="p")
    assert never_fits(bench.state, bench.policies, task) == ""


def test_a_drained_pool_gets_nothing_more_until_it_is_resumed(bench: Bench) -> None:
    bench.policies = table(a=Policy())
    fill(bench, "a", 6)
    bench.beat(slots=2)
    bench.tick()
    bench.send(PoolDrained(pool="standard"))
    bench.beat(slots=6)
    bench.tick()
    assert held(bench) == {"a": 2}, "what runs goes on"
    bench.send(PoolDrained(pool="nowhere"))
    assert bench.state.meta.counters == {"control_of_unknown_pool": 1}
    bench.send(PoolResumed(pool="standard"))
    bench.tick()
    assert held(bench) == {"a": 6}


def test_a_drained_domain_gives_its_slots_back_at_no_cost(bench: Bench) -> None:
    bench.submit("t")
    bench.submit("b0", "b")
    bench.beat(slots=8)
    bench.tick()
    effects = bench.send(DomainDrained(domain="a"))
    assert [effect.event.reason for effect in effects if isinstance(effect, Revoke)] == ["drained"]
    bench.tick()
    entry = bench.state.live["t"]
    assert (entry.state, entry.drains, entry.losses, entry.failures) == ("ready", 1, 0, 0)
    assert held(bench) == {"b": 1}
    bench.send(DomainResumed(domain="a"))
    bench.tick()
    assert held(bench) == {"a": 1, "b": 1}
    assert bench.assigned[-1].attempt == 2
