"""Several shards and attempts of all sizes: whatever they need, nobody starves."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tasks import Sampling
from services.scheduler.policies import Policies, Policy
from services.scheduler.records import HELD
from tests.shards import Fleet

TABLE = Policies(
    domains={f"d{number}": Policy(slots=1 + number % 3, weight=1.0 + number) for number in range(6)}
    | {"giant": Policy(slots=10, weight=100.0)},
    group_size=2,
    groups_per_step=40,
    eta=10**6,
    half_life_s=60.0,
)
TOKENS = 200
"""Of the pool; two samples of 100 each take them all."""


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(3, 9), st.integers(0, 10**9))
def test_slots_and_tokens_of_any_size_are_served(shards: int, slots: int, seed: int) -> None:
    """Attempts that need more tokens than all samplers have run alone; one for which no sampler has the slots holds up nobody."""
    served(shards, slots, seed)


def test_small_ones_run_together_and_too_large_ones_alone() -> None:
    """The property above is not held by runs in which there is never more than one attempt, or never one that is too large."""
    most, alone = zip(*(served(3, 9, seed) for seed in range(4)), strict=True)
    assert max(most) > 2
    assert all(alone)


def served(shards: int, slots: int, seed: int) -> tuple[int, int]:
    """See tasks of all sizes through; most attempts at a time, and looks at which one had more tokens than there are."""
    fleet = Fleet(TABLE, shards, slots=slots, seed=seed)
    rng = random.Random(seed)
    fleet.tokens = TOKENS
    fleet.submit("waits", "giant")
    for number in range(40):
        size = Sampling(max_tokens=rng.choice((1, 10, 40, 100, 500)))
        purpose = rng.choice(("train", "train", "eval"))
        fleet.submit(f"t{number}", f"d{rng.randrange(6)}", purpose=purpose, sampling=size)
    most = alone = 0
    for _ in range(100):
        fleet.chance()
        assert fleet.held()[0] <= slots
        held = [
            lease.tokens
            for shard in fleet.shards
            for lease in shard.state.live.values()
            if lease.state in HELD
        ]
        most, alone = max(most, len(held)), alone + (sum(held) > TOKENS)
        assert sum(held) <= TOKENS or len(held) == 1, "above what there is, alone"
    fleet.sound()
    fleet.quiet(lambda: fleet.live() == 1)
    assert "waits" in fleet.owner("giant").state.live
    fleet.slots = 10
    fleet.beat()
    fleet.quiet(lambda: not fleet.live())
    assert len(fleet.states) == 41
    return most, alone
