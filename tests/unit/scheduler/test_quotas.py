"""Quotas as events and cards set them: what cannot be meant, or is more than exists, is refused and disturbs nothing."""

from __future__ import annotations

import msgspec
import pytest

from schemas.cards import CardError, parse_card
from schemas.tasks import (
    DomainDrained,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
)
from services.runtime.errors import BadInput
from services.scheduler.cli import lines
from services.scheduler.controls import refusal
from services.scheduler.explain import explain
from services.scheduler.policies import Policy
from services.scheduler.steering import control_of
from services.scheduler.summary import figures, summary
from tests.unit.scheduler.conftest import Bench
from tests.unit.scheduler.filling import CARD, fill, held, table


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
