"""Several shards and attempts of all sizes: whatever they need, nobody starves."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.tasks import Sampling
from services.scheduler.policies import Policies, Policy
from tests.shards import Fleet

TABLE = Policies(
    domains={f"d{number}": Policy(slots=1 + number % 3, weight=1.0 + number) for number in range(6)}
    | {"giant": Policy(slots=10, weight=100.0)},
    group_size=2,
    groups_per_step=40,
    eta=10**6,
    half_life_s=60.0,
)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(3, 9), st.integers(0, 10**9))
def test_slots_and_tokens_of_any_size_are_served(shards: int, slots: int, seed: int) -> None:
    """Attempts that need more tokens than all samplers have run alone; one for which no sampler has the slots holds up nobody."""
    fleet = Fleet(TABLE, shards, slots=slots, seed=seed)
    rng = random.Random(seed)
    fleet.tokens = 200
    fleet.submit("waits", "giant")
    for number in range(40):
        size = Sampling(max_tokens=rng.choice((1, 10, 40, 100, 500)))
        purpose = rng.choice(("train", "train", "eval"))
        fleet.submit(f"t{number}", f"d{rng.randrange(6)}", purpose=purpose, sampling=size)
    for _ in range(100):
        fleet.chance()
        assert fleet.held()[0] <= slots
        held = [
            lease.tokens
            for shard in fleet.shards
            for lease in shard.state.live.values()
            if lease.state == "leased"
        ]
        assert sum(held) <= 200 or len(held) == 1, "above what there is, alone"
    fleet.sound()
    fleet.quiet(lambda: fleet.live() == 1)
    assert "waits" in fleet.owner("giant").state.live
    fleet.slots = 10
    fleet.beat()
    fleet.quiet(lambda: not fleet.live())
    assert len(fleet.states) == 41
