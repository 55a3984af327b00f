"""Classes and shards over few slots: a share of less than one slot is a slot now and then, never none."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.cards import Deadline
from services.scheduler.levels import kept
from services.scheduler.policies import Policies, Policy
from tests.shards import Fleet

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench

NAMES = [f"d{number}" for number in range(8)]
TABLE = Policies(
    domains=dict.fromkeys(NAMES, Policy(deadline=Deadline(estimate_s=1.0))),
    group_size=1,
    groups_per_step=10**6,
    half_life_s=20.0,
)


@pytest.mark.parametrize(
    ("units", "share", "wanted", "behind", "keeps"),
    [
        (100, 0.1, 50, False, 10),
        (100, 0.1, 3, True, 3),
        (104, 0.1, 50, False, 10),
        (104, 0.1, 50, True, 11),
        (1, 0.1, 5, False, 0),
        (1, 0.1, 5, True, 1),
        (30, 0.1, 50, True, 3),
        (0, 0.1, 5, True, 0),
    ],
)
def test_what_a_class_keeps(units: int, share: float, wanted: int, *, behind: bool, keeps: int) -> None:
    assert kept(units, share, wanted, behind=behind) == keeps


@pytest.mark.parametrize("slots", [1, 3])
def test_shards_with_fewer_slots_than_shards_take_turns_by_weight(slots: int) -> None:
    """A shard that gives its only slot back is not the one that is waited for next."""
    fleet = Fleet(TABLE, 2, slots=slots)
    owned = Counter(fleet.owner(name).policies.shard for name in NAMES)
    for _ in range(1200):
        for name in NAMES:
            fleet.top_up(name, 3)
        fleet.turn(0.2)
    whole = fleet.sent.total()
    for shard, count in owned.items():
        sent = sum(fleet.sent[name] for name in NAMES if fleet.owner(name).policies.shard == shard)
        assert abs(sent / whole - count / len(NAMES)) < 0.04


def test_big_tasks_of_two_shards_that_share_an_odd_slot_take_turns() -> None:
    """Three slots, tasks of two: whole shares are 2 and 1, and the one with 1 is waited for only when it is behind."""
    table = msgspec.structs.replace(
        TABLE, domains=dict.fromkeys(NAMES, Policy(slots=2, deadline=Deadline(estimate_s=1.0)))
    )
    fleet = Fleet(table, 2, slots=3)
    for _ in range(1200):
        for name in NAMES:
            fleet.top_up(name, 3)
        fleet.turn(0.2)
    assert min(fleet.sent[name] for name in NAMES) > 0.5 * fleet.sent.total() / len(NAMES)


def test_one_slot_is_training_s_now_and_then_although_evaluation_never_ends(bench: Bench) -> None:
    bench.policies = Policies(domains={"a": Policy(), "b": Policy()}, group_size=2, eta=10_000)
    for number in range(60):
        bench.submit(f"e{number:02}", purpose="eval")
    for number in range(6):
        bench.submit(f"t{number}", "b")
    order = [bench.run(1.0, 1.0)[0] for _ in range(40)]
    assert order[:9] == ["e"] * 9, "a measurement does not wait"
    assert order.count("t") == 4, "and one lease in ten is for training"
    assert bench.state.meta.owed.get("standard", 0.0) < bench.policies.of("b").deadline.estimate_s


def test_evaluation_alone_makes_no_debt(bench: Bench) -> None:
    for number in range(30):
        bench.submit(f"e{number:02}", purpose="eval")
    for _ in range(20):
        bench.run(1.0, 1.0)
    assert bench.state.meta.owed == {}
    bench.submit("t")
    assert bench.run(1.0, 1.0)[0] == "e", "training that comes later is not paid for what it never waited for"
