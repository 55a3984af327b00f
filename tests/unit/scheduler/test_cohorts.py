from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from schemas.cards import CardError, Deadline, Retry, parse_card
from schemas.tasks import (
    DomainDrained,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
    Sampling,
    Task,
)
from services.runtime.errors import BadInput
from services.scheduler.cli import lines
from services.scheduler.cohorts import never_fits
from services.scheduler.controls import refusal
from services.scheduler.effects import Revoke
from services.scheduler.explain import explain
from services.scheduler.fold import tick
from services.scheduler.policies import Policies, Policy
from services.scheduler.quotas import free_slots, room
from services.scheduler.steering import control_of
from services.scheduler.summary import figures, summary
from tests.unit.scheduler.conftest import Bench


def table(**domains: Policy) -> Policies:
    return Policies(domains=domains, group_size=2, eta=10_000, ready_cap=1000)


def fill(bench: Bench, domain: str, count: int, start: int = 0, **fields: Any) -> None:
    for number in range(start, start + count):
        bench.submit(f"{domain}{number}", domain, **fields)


def held(bench: Bench) -> dict[str, int]:
    return {name: leases.slots for name, leases in sorted(bench.state.held.items()) if leases}


def finish(bench: Bench, domain: str, count: int) -> None:
    running = [entry for entry in bench.state.live.values() if entry.domain == domain and entry.lease_id]
    for entry in running[:count]:
        bench.verdicts(entry.id, 1.0, 0.0)


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


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (QuotaChanged(domain="a", nominal=99), "quota_above_capacity"),
        (QuotaChanged(domain="c", nominal=1, borrow=2), "quota_without_cohort"),
        (QuotaChanged(domain="a", nominal=1, lend=2), "quota_lend_above_nominal"),
        (QuotaChanged(domain="b", nominal=0), "quota_below_lent"),
        (QuotaChanged(domain="b", nominal=4, lend=0), "quota_below_lent"),
        (QuotaChanged(domain="d", nominal=1), "quota_below_request"),
        (QuotaChanged(domain="nowhere", nominal=1), "control_of_unknown_domain"),
    ],
)
def test_a_quota_that_cannot_be_is_refused_and_disturbs_nothing(
    bench: Bench, event: QuotaChanged, cause: str
) -> None:
    bench.policies = table(
        a=Policy(nominal=4, cohort="x"), b=Policy(nominal=4, cohort="x"), c=Policy(), d=Policy(slots=2)
    )
    fill(bench, "a", 20)
    bench.beat(slots=20)
    bench.tick()
    before = held(bench)
    word, line = refusal(bench.state, bench.policies, event)
    assert word == cause
    assert line
    bench.send(event)
    bench.tick()
    assert bench.state.meta.counters == {cause: 1}
    assert held(bench) == before
    record = bench.state.domains.get(event.domain)
    assert record is None or (record.nominal, record.borrow, record.lend) == (None, None, None)
    if record is not None:
        assert record.refused == line


def test_a_quota_that_can_be_is_taken_and_wakes_what_waited(bench: Bench) -> None:
    bench.policies = table(a=Policy(nominal=2))
    fill(bench, "a", 9)
    bench.beat(slots=9)
    bench.tick()
    assert held(bench) == {"a": 2}
    bench.send(QuotaChanged(domain="a", nominal=5))
    bench.tick()
    assert held(bench) == {"a": 5}
    bench.send(QuotaChanged(domain="a", nominal=0))
    bench.tick()
    assert held(bench) == {"a": 9}


def refused(bench: Bench, domain: str, nominal: int, **fields: int) -> str:
    """The line for a quota, empty if it was taken."""
    bench.send(QuotaChanged(domain=domain, nominal=nominal, **fields))
    return bench.state.domain(domain).refused


def test_what_exists_are_live_slots_of_the_pools_in_which_the_domain_works(bench: Bench) -> None:
    bench.policies = table(a=Policy(), b=Policy())
    bench.beat("s", slots=4)
    bench.beat("f", slots=8, pool="fast")
    assert "more than the 4 slots" in refused(bench, "a", 5), "its tasks are in the run's own pool"
    bench.submit("t", "b", pool="fast")
    assert refused(bench, "b", 12) == "", "b has work in the other pool too"
    assert "more than the 12 slots" in refused(bench, "b", 13)
    bench.beat("f", slots=1, pool="fast")
    assert refused(bench, "b", 11) == "", "lowering a promise that is too high by now"
    assert "more than the 5 slots" in refused(bench, "b", 12)
    bench.beat("f", slots=8, pool="fast", draining=True)
    assert refused(bench, "b", 9) == ""
    assert "was not checked: no live sampler of pool fast" in bench.state.domains["b"].unproven
    bench.beat("f", slots=1, pool="fast")
    assert "more than the 5 slots" in refused(bench, "b", 11)
    assert refused(bench, "b", 5) == ""
    assert bench.state.domains["b"].unproven == ""
    bench.now += 100.0
    assert refused(bench, "a", 99) == "", "nobody who lives says how many there are"
    assert "99 slots for domain a was not checked" in bench.state.domains["a"].unproven


def test_what_a_pool_is_set_up_to_have_exists_whoever_is_there(bench: Bench) -> None:
    bench.policies = msgspec.structs.replace(table(a=Policy()), pool_slots={"standard": 16})
    assert "more than the 16 slots" in refused(bench, "a", 17), "no sampler has come yet"
    bench.beat(slots=4)
    assert refused(bench, "a", 16) == ""
    assert bench.state.domains["a"].unproven == ""


def test_a_cohort_owns_no_more_together_than_exists(bench: Bench) -> None:
    bench.policies = table(
        a=Policy(nominal=4, cohort="x"), b=Policy(nominal=4, cohort="x"), c=Policy(nominal=50, cohort="y")
    )
    bench.beat(slots=10)
    assert "makes cohort x own 11 slots, and there are 10" in refused(bench, "a", 7)
    assert refused(bench, "a", 6) == ""
    assert "makes cohort x own 11" in refused(bench, "b", 5)
    bench.beat(slots=3)
    assert refused(bench, "b", 3) == "", "lowering is never too high"
    assert refused(bench, "c", 20) == "", "a card's quota may be too high; the event lowers it"
    assert "own 21" in refused(bench, "c", 21)
    bench.submit("t", "b", pool="fast")
    bench.beat("f", slots=5, pool="fast")
    assert refused(bench, "a", 5) == "", "3 and 5 slots in the pools of both, a and b"
    counters = bench.state.meta.counters
    assert counters["quota_above_capacity"] == 3
    assert figures(bench.state, bench.policies, bench.now)["controls_refused"] == 3.0


def test_a_refused_control_is_shown_until_one_is_taken(bench: Bench) -> None:
    bench.submit("t")
    bench.beat(slots=4)
    line = refused(bench, "a", 99)
    row = summary(bench.state, bench.policies, bench.now)["domains"]["a"]
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert row["control_refused"] == found["control_refused"] == line != ""
    assert line in "\n".join(lines(summary(bench.state, bench.policies, bench.now)))
    bench.send(QuotaChanged(domain="a", nominal=3))
    assert "control_refused" not in summary(bench.state, bench.policies, bench.now)["domains"]["a"]


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


CARD = """
name = "x"
layer = "foundation"
summary = "s"
generator = "a:b"
[verifier]
family = "format"
"""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[quota]\nborrow = 1", "quota.cohort"),
        ("[quota]\ncohort = 'x'\nnominal = 1\nlend = 2", "quota.lend"),
        ("[quota]\nnominal = 1\n[request]\nslots = 2", "request.slots"),
        ("[quota]\ncohort = 'x'\nnominal = 1\nborrow = 1\n[request]\nslots = 3", "request.slots"),
        ("[quota]\nnominal = -1", "nominal"),
        ("[quota]\nnominal = nan", "nominal"),
        ("[request]\nslots = 0", "slots"),
    ],
)
def test_a_card_whose_quota_cannot_be_meant_is_refused(text: str, word: str) -> None:
    with pytest.raises(CardError, match=word):
        parse_card(CARD + text, "card")


def test_the_command_line_refuses_what_is_no_number_and_no_name() -> None:
    policies = table(a=Policy())
    assert control_of("drain", "fast", policies) == PoolDrained(pool="fast", reason="by the user")
    assert control_of("drain", "a", policies) == DomainDrained(domain="a", reason="by the user")
    assert control_of("resume", "fast", policies) == PoolResumed(pool="fast")
    quota = QuotaChanged(domain="a", nominal=3, borrow=0)
    assert control_of("quota", "a", policies, nominal="3", borrow="0") == quota
    for nominal in ("-1", "nan", "inf", "1.5", ""):
        with pytest.raises(BadInput, match="slots at a time"):
            control_of("quota", "a", policies, nominal=nominal)
    with pytest.raises(BadInput, match="unknown domain 'nowhere'"):
        control_of("pause", "nowhere", policies)
    with pytest.raises(BadInput, match="pools are"):
        control_of("drain", "nowhere", policies)
