"""Lending and borrowing within a cohort."""

from __future__ import annotations

import sys
from typing import Any

from services.scheduler.fold import tick
from services.scheduler.policies import Policy
from services.scheduler.quotas import room
from tests.unit.scheduler.conftest import Bench
from tests.unit.scheduler.filling import fill, finish, held, table


def test_what_a_domain_does_not_use_is_lent_and_comes_back_as_leases_end(bench: Bench) -> None:
    bench.policies = table(a=Policy(nominal=4, cohort="x"), b=Policy(nominal=4, cohort="x"))
    fill(bench, "a", 20)
    bench.beat(slots=20)
    bench.tick()
    assert held(bench) == {"a": 8}, "b waits for nothing, so a has the whole cohort"
    fill(bench, "b", 20)
    bench.tick()
    assert held(bench) == {"a": 8}, "nothing is taken from what runs"
    finish(bench, "a", 3)
    bench.beat(slots=20)
    bench.tick()
    assert held(bench) == {"a": 5, "b": 3}, "what ends goes to its owner first"
    finish(bench, "a", 1)
    bench.tick()
    finish(bench, "b", 1)
    bench.tick()
    assert held(bench) == {"a": 4, "b": 4}


def test_a_domain_lends_and_borrows_no_more_than_it_may(bench: Bench) -> None:
    bench.policies = table(
        a=Policy(nominal=2, cohort="x", borrow=3),
        b=Policy(nominal=6, cohort="x", lend=4),
        c=Policy(nominal=0, cohort="x"),
    )
    fill(bench, "a", 20)
    bench.beat(slots=20)
    bench.tick()
    assert held(bench) == {"a": 5}, "2 of its own and 3 of b's"
    assert (room(bench.state, bench.policies, "a"), room(bench.state, bench.policies, "c")) == (0, 1)
    fill(bench, "c", 20)
    bench.tick()
    assert held(bench) == {"a": 5, "c": 1}, "b lends 4 of its 6"
    fill(bench, "b", 20)
    bench.tick()
    assert held(bench) == {"a": 5, "b": 2, "c": 1}, "what b does not lend is there for it at once"


def test_a_borrower_waits_while_an_owner_waits(bench: Bench) -> None:
    """The borrower is far below the owner in the fair order, and still gets nothing that the owner may have."""
    bench.policies = table(a=Policy(nominal=1, cohort="x", weight=1000.0), b=Policy(nominal=3, cohort="x"))
    fill(bench, "a", 20)
    fill(bench, "b", 20)
    bench.beat(slots=4)
    bench.tick()
    assert held(bench) == {"a": 1, "b": 3}
    for _ in range(5):
        bench.now += 100.0
        finish(bench, "b", 1)
        bench.beat(slots=4)
        bench.tick()
        assert held(bench)["b"] == 3


def test_what_changes_in_a_cohort_is_seen_by_all_its_domains_at_once(bench: Bench) -> None:
    """Domains that draw on a cohort are put aside together, and come back together: in their order, with nobody left behind."""
    names = [f"d{number}" for number in range(6)]
    bench.policies = table(
        owner=Policy(nominal=3, cohort="x"), **{name: Policy(nominal=0, cohort="x") for name in names}
    )
    for name in names:
        fill(bench, name, 3)
    bench.beat(slots=20)
    bench.tick()
    assert sum(held(bench).values()) == 3
    order = [assigned.task.domain for assigned in bench.assigned]
    for turn in range(15):
        bench.now += 1.0
        finish(bench, order[turn], 1)
        bench.beat(slots=20)
        bench.tick()
        order.append(bench.assigned[-1].task.domain)
        assert sum(held(bench).values()) == 3, "what ended is given out again, once"
    assert sorted(order) == sorted(name for name in names for _ in range(3))
    assert all(len(set(order[at : at + 6])) == 6 for at in (0, 6, 12)), "in turn"


def test_domains_without_room_cost_a_decision_nothing() -> None:
    """Steps are counted, not timed: with a hundred times the domains in a cohort no more keys are looked at."""

    def looked_at(domains: int) -> int:
        bench = Bench()
        bench.policies = table(
            owner=Policy(nominal=2, cohort="x"),
            **{f"d{number}": Policy(nominal=0, cohort="x") for number in range(domains)},
        )
        for number in range(domains):
            bench.submit(f"t{number}", f"d{number}")
        bench.beat(slots=9)
        bench.tick()
        calls = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal calls
            calls += event == "call" and "services/scheduler" in frame.f_code.co_filename

        finish(bench, bench.assigned[0].task.domain, 1)
        bench.now += 1.0
        sys.setprofile(count)
        try:
            tick(bench.state, bench.policies, bench.now)
        finally:
            sys.setprofile(None)
        assert sum(held(bench).values()) == 2
        return calls

    assert looked_at(500) <= looked_at(5) + 20
