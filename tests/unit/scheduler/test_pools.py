"""What a pool's samplers announce, and tasks that are too big for it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.cards import parse_card
from schemas.run import RunConfig
from schemas.run import Sampler as SamplerSection
from schemas.run import Scheduler as SchedulerSection
from schemas.tasks import Sampling, Task
from services.runtime.settings import SettingsError
from services.scheduler.cohorts import tokens_of
from services.scheduler.explain import explain
from services.scheduler.policies import Policy, policies_of
from services.scheduler.quotas import Free
from services.scheduler.summary import summary
from tests.unit.scheduler.filling import CARD, table

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def causes(bench: Bench, task: str) -> list[str]:
    found = explain(bench.state, bench.policies, task, bench.now)
    assert found is not None
    causes: list[str] = found["waits_for"]
    return causes


def free(bench: Bench, pool: str = "standard") -> Free:
    return Free(bench.state, bench.policies, pool, bench.now)


def test_an_attempt_holds_its_prompt_once_and_a_sample_no_more_than_samplers_take() -> None:
    policies = table(a=Policy(sampling=Sampling(max_tokens=100)))
    task = Task(id="t", domain="a", prompt="x" * 80, system="y" * 20, group_size=3)
    assert tokens_of(policies, task) == 25 + 3 * 100
    long = msgspec.structs.replace(task, sampling=Sampling(max_tokens=1_000_000))
    assert tokens_of(policies, long) == 3_000_025
    assert tokens_of(msgspec.structs.replace(policies, max_model_len=256), long) == 3 * 256
    assert tokens_of(policies, msgspec.structs.replace(task, prompt="ä" * 40, system="")) == 20 + 300


def test_a_sampler_that_is_starting_lifts_no_bound(bench: Bench) -> None:
    bench.beat(slots=4, tokens=100)
    bench.beat("starting", slots=0)
    assert (free(bench).slots, free(bench).tokens) == (4, 100)
    bench.beat("other", slots=1)
    assert free(bench).tokens == float("inf"), "one that knows no limit does"
    bench.beat("other", slots=1, draining=True)
    assert (free(bench).slots, free(bench).tokens) == (4, 100)
    workers = summary(bench.state, bench.policies, bench.now)["workers"]
    assert [worker["tokens"] for worker in workers] == [0, 0, 100]


def test_what_a_shard_may_use_is_what_it_was_granted(bench: Bench) -> None:
    bench.policies = msgspec.structs.replace(
        table(a=Policy(sampling=Sampling(max_tokens=100)), b=Policy(slots=4)), shards=2
    )
    bench.beat(slots=6, tokens=1000)
    bench.beat("other", slots=2, tokens=1000)
    bench.state.meta.credits = {"slots:standard": 3, "tokens:standard": 150}
    assert (free(bench).there, free(bench).whole, free(bench).tokens) == (8, 3, 150)
    bench.submit("a", "a")
    bench.submit("b", "b")
    assert causes(bench, "a")[0] == (
        "it may hold 201 tokens, of the 2000 of pool standard its scheduler may use 150 now"
    )
    assert causes(bench, "b")[0] == (
        "it needs 4 slots, of the 8 of pool standard its scheduler may use 3 now"
    )


def test_tokens_that_are_in_use_are_named(bench: Bench) -> None:
    bench.policies = table(a=Policy(sampling=Sampling(max_tokens=100)))
    bench.submit("one", "a")
    bench.submit("two", "a")
    bench.beat(slots=8, tokens=300)
    bench.tick()
    assert causes(bench, "two") == ["it may hold 201 tokens, of the 300 of pool standard 99 are free"]


def test_what_fits_no_worker_that_is_here_waits_and_says_so_until_one_comes(bench: Bench) -> None:
    bench.policies = table(a=Policy(slots=3), b=Policy())
    bench.submit("big", "a")
    bench.beat("one", slots=2)
    bench.beat("two", slots=2)
    bench.tick()
    assert bench.phase("big") == "ready", "an attempt runs in one sampler: two of 2 slots are not one of 3"
    (line,) = causes(bench, "big")
    assert line == (
        "it fits no worker that is here: it needs 3 slots, the largest sampler of pool standard has 2; "
        "start one with more (sampler.slots)"
    )
    bench.submit("small", "b")
    bench.tick()
    assert bench.phase("small") == "leased", "nobody is held up by it"
    bench.beat("starting", slots=0)
    bench.beat("large", slots=3)
    bench.tick()
    assert bench.phase("big") == "leased"


def test_a_pool_whose_samplers_start_says_so(bench: Bench) -> None:
    bench.submit("t")
    bench.beat(slots=0)
    assert causes(bench, "t") == ["the samplers of pool standard are starting, none has slots yet"]


def test_more_tokens_than_all_samplers_hold_run_alone_and_say_so(bench: Bench) -> None:
    bench.policies = table(a=Policy(sampling=Sampling(max_tokens=10)), b=Policy())
    for number in range(3):
        bench.submit(f"s{number}", "a")
    bench.beat(slots=4, tokens=500)
    bench.tick()
    bench.submit("huge", "b", sampling=Sampling(max_tokens=400))
    bench.submit("later", "a")
    bench.tick()
    assert causes(bench, "huge") == [
        "it may hold 801 tokens, all samplers of pool standard together 500: it runs alone, once the 3 slots in use are free"
    ]
    assert "held for task huge" in causes(bench, "later")[0]
    for number in range(3):
        assert bench.phase("huge") == "ready"
        bench.verdicts(f"s{number}", 1.0, 1.0)
        bench.tick()
    assert (bench.phase("huge"), bench.phase("later")) == ("leased", "ready")
    bench.verdicts("huge", 1.0, 1.0)
    bench.tick()
    assert bench.phase("later") == "leased"


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_sizes_everything_is_served(bench: Bench, seed: int) -> None:
    """Slots and tokens of any size up to the pool's, and tokens above it: all end, and what fits is never above the pool's."""
    rng = random.Random(seed)
    bench.policies = table(
        **{f"d{slots}": Policy(slots=slots, weight=rng.choice((0.1, 1.0, 50.0))) for slots in (1, 2, 3)}
    )
    names = []
    for number in range(60):
        tokens = rng.choice((1, 5, 20, 60, 400))
        names.append(f"t{number}")
        bench.submit(names[-1], f"d{rng.randint(1, 3)}", prompt="", sampling=Sampling(max_tokens=tokens))
    for _ in range(400):
        bench.now += 1.0
        bench.beat("one", slots=3, tokens=120)
        bench.beat("two", slots=rng.choice((0, 2)), tokens=80)
        bench.tick()
        held = [entry for entry in bench.state.live.values() if entry.state == "leased"]
        if len(held) > 1:
            assert all(entry.tokens <= 200 for entry in held), "one above the pool's size is alone"
        if held:
            bench.verdicts(rng.choice(held).id, 1.0, 1.0)
    assert [name for name in names if name in bench.state.live] == []


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "an attempt of domain x needs 5 slots, pool standard has 4"),
        ({"pool": "fast", "sampling": Sampling(max_tokens=999)}, "pool fast has 1000"),
    ],
)
def test_a_pool_that_is_set_up_rejects_what_it_can_never_give(
    bench: Bench, fields: dict[str, object], line: str
) -> None:
    config = RunConfig(
        scheduler=SchedulerSection(pool_slots={"standard": 4}, pool_tokens={"fast": 1000}),
        sampler=SamplerSection(max_model_len=2048),
    )
    card = parse_card(CARD + "[request]\nslots = 5", "card")
    bench.policies = policies_of({"x": card}, config)
    bench.submit("t", "x", **fields)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause) == ("rejected", "never_fits")
    assert line in ended.reason
    assert "\n" not in ended.reason


def test_a_bound_for_a_pool_that_there_is_not_is_refused() -> None:
    with pytest.raises(
        SettingsError, match=r"scheduler.pool_tokens names pool 'slow'; the pools are fast, standard"
    ):
        policies_of({}, RunConfig(scheduler=SchedulerSection(pool_tokens={"slow": 1})))


def test_a_task_for_an_unknown_pool_is_rejected_in_one_line(bench: Bench) -> None:
    bench.submit("t", pool="nowhere")
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause) == ("rejected", "unknown_pool")
    assert ended.reason == "unknown pool 'nowhere'; the pools are fast, standard"
    bench.submit("u", pool="fast")
    assert bench.phase("u") == "ready", "a pool that nobody serves yet is known all the same"
    assert causes(bench, "u") == ["no sampler of pool fast has sent a heartbeat in 10 s"]
