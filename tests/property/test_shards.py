"""Several shards over one log, in any order of reading, with deaths: nothing beyond capacity, one task a key, nobody starved."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas.cards import Retry, Timeouts
from schemas.tasks import TaskSubmitted
from services.scheduler.intake import content_of
from services.scheduler.policies import Policies, Policy
from tests.shards import Fleet

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)
"""An example is a seed: there is nothing to shrink."""
TABLE = Policies(
    domains={
        f"d{number}": Policy(
            weight=1.0 + number % 3,
            slots=1 + number % 2,
            retry=Retry(infra=1000),
            timeouts=Timeouts(lease_s=100.0, attempt_s=1000.0),
        )
        for number in range(6)
    },
    group_size=2,
    groups_per_step=40,
    eta=10**6,
    half_life_s=60.0,
)


@settings(max_examples=12, deadline=None, phases=QUICK)
@given(st.integers(2, 4), st.integers(2, 9), st.integers(0, 1), st.integers(0, 10**9))
def test_all_shards_together_never_hold_more_than_there_is(
    shards: int, slots: int, tokens: int, seed: int
) -> None:
    fleet = Fleet(TABLE, shards, slots=slots, seed=seed, task_partitions=2)
    rng = random.Random(seed)
    fleet.tokens = slots * 128 if tokens else 0
    for number in range(60):
        fleet.submit(f"t{number}", f"d{rng.randrange(6)}", purpose=rng.choice(("train", "train", "eval")))
    peak = accounts_seen = 0
    for _ in range(300):
        fleet.chance()
        held = fleet.held()
        peak = max(peak, held[0])
        assert held[0] <= slots
        assert not tokens or held[1] <= fleet.tokens
        treasury = fleet.shards[0].state.meta.treasury
        for name, accounts in ({} if treasury is None else treasury.accounts).items():
            there = treasury.capacity.get(name) if treasury is not None else None
            accounts_seen += there is not None
            assert there is None or sum(account.bound for account in accounts) <= there, name
    # All that there was came to be held, but for what is too little for one attempt; with few tokens one may take them all.
    assert tokens or peak >= slots - 1
    assert accounts_seen > 100
    fleet.sound()
    fleet.quiet(lambda: not fleet.live())
    assert len(fleet.states) == 60, "nobody starves"


@settings(max_examples=10, deadline=None, phases=QUICK)
@given(st.integers(2, 3), st.integers(1, 6), st.integers(0, 10**9))
def test_training_groups_of_all_shards_stay_within_the_staleness_bound(
    shards: int, per_step: int, seed: int
) -> None:
    policies = Policies(domains=TABLE.domains, group_size=2, groups_per_step=per_step, eta=1)
    fleet = Fleet(policies, shards, slots=20, seed=seed)
    for number in range(40):
        fleet.submit(f"t{number}", f"d{number % 6}")
    for _ in range(200):
        fleet.chance()
        assert fleet.tickets() <= 2 * per_step
    fleet.sound()
    fleet.quiet(lambda: fleet.tickets() == min(40, 2 * per_step))


@settings(max_examples=20, deadline=None, phases=QUICK)
@given(st.integers(2, 4), st.integers(1, 6), st.integers(10, 60), st.integers(0, 1), st.integers(0, 10**9))
def test_a_key_is_one_task_s_over_all_shards(
    shards: int, keys: int, count: int, kill: int, seed: int
) -> None:
    keyed(shards, keys, count, seed, deaths=bool(kill))


def test_a_key_meets_every_case() -> None:
    """The property above is not held by runs in which nothing happens."""
    seen = Counter[str]()
    for seed in range(6):
        seen += keyed(3, 3, 40, seed, deaths=True)
    assert {case for case, times in seen.items() if times > 5} == {
        *("admitted", "repeated", "refused", "delivered twice", "twice in two partitions"),
        *("of two shards", "deaths"),
    }


def keyed(shards: int, keys: int, count: int, seed: int, *, deaths: bool) -> Counter[str]:
    """Submit tasks with few keys to all shards, some twice, and see that each key is one task's; how often what happened."""
    fleet = Fleet(TABLE, shards, slots=4, seed=seed, task_partitions=3)
    rng = random.Random(seed)
    seen = Counter[str]()
    for number in range(count):
        name, domain = f"t{number}", f"d{rng.randrange(6)}"
        content: dict[str, Any] = {
            "idempotency_key": f"k{rng.randrange(keys)}",
            "prompt": f"p{rng.randrange(2)}",
        }
        fleet.submit(name, domain, **content)
        if rng.random() < 0.2:  # delivered twice, in any partition
            fleet.submit(name, domain, **content)
            seen["delivered twice"] += 1
        for _ in range(rng.randrange(3)):
            fleet.chance(deaths=deaths)
    # What lies in the log is what was sent: the same event each time, wherever it lies.
    sent: dict[str, TaskSubmitted] = {}
    for name, copies in written(fleet).items():
        assert 1 <= len(copies) <= 2
        assert len({content_of(event) for _, event in copies}) == 1
        seen["twice in two partitions"] += len({partition for partition, _ in copies}) > 1
        sent[name] = copies[0][1]
    assert len(sent) == count
    fleet.quiet(lambda: not fleet.live() and all_read(fleet))
    fleet.sound()
    seen["deaths"] = sum(shard.repeats != (0, 0) for shard in fleet.shards)
    ended = {name: task for shard in fleet.shards for name, task in shard.state.ended.items()}
    admitted: dict[str, str] = {}
    for name, task in sorted(ended.items()):
        if task.state != "rejected":
            key = sent[name].idempotency_key
            assert key not in admitted, f"{key} is of {admitted[key]} and of {name}"
            admitted[key] = name
            seen["admitted"] += 1
        else:
            assert task.cause == "key_reused"
    assert set(admitted) == {event.idempotency_key for event in sent.values()}
    for name, event in sent.items():
        first = admitted[event.idempotency_key]
        if name == first:
            continue
        seen["of two shards"] += fleet.owner(event.task.domain) is not fleet.owner(sent[first].task.domain)
        if content_of(event) == content_of(sent[first]):
            assert name not in ended, "a repeat is no task"
            seen["repeated"] += 1
        else:
            assert ended[name].state == "rejected"
            assert f"by task {first}" in ended[name].reason
            assert fleet.states[name][-1].cause == "key_reused"
            seen["refused"] += 1
    return seen


def written(fleet: Fleet) -> dict[str, list[tuple[int, TaskSubmitted]]]:
    """Task -> partition and event of each of its submissions in the log."""
    found: dict[str, list[tuple[int, TaskSubmitted]]] = {}
    for (topic, partition), records in fleet.log.parts.items():
        for record in records:
            if topic == "tasks" and isinstance(record.event, TaskSubmitted):
                found.setdefault(record.event.task.id, []).append((partition, record.event))
    return found


def all_read(fleet: Fleet) -> bool:
    """Whether every shard has read all that was submitted; answers that are still to come keep a submission pending."""
    return all(
        shard.state.meta.offsets.get(f"{topic}/{partition}", 0) == len(records)
        for shard in fleet.shards
        for (topic, partition), records in fleet.log.parts.items()
        if topic == "tasks"
    )
