from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.cards import parse_card
from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.tasks import PolicyRef, Task, TaskSubmitted
from services.runtime.settings import SettingsError, resolve
from services.scheduler import mix
from services.scheduler.effects import Assign
from services.scheduler.fold import fold, tick
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy, policies_of
from services.scheduler.records import Domain, Evidence, Share
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.verdicts import verified

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RATIOS = {"foundation": 4.0, "tool": 3.0, "domain": 2.0, "long_horizon": 1.0}


def told(policies: Policies, evidence: Mapping[str, Evidence]) -> State:
    state = State()
    for name in policies.domains:
        state.domains[name] = Domain(name=name, evidence=evidence.get(name, Evidence()))
    return state


def groups(mean: float, count: int = 50) -> Evidence:
    """Evidence as after many groups of a domain whose samples pass with this chance."""
    kept = 1.0 - mean**8 - (1.0 - mean) ** 8
    return Evidence(groups=count, mean=mean, variance=mean * (1.0 - mean), informative=kept, cost_s=2.0, at=0)


class World:
    """A fold fed by samplers and verifiers that take the time, and give the scores, that a domain's truth says."""

    def __init__(self, policies: Policies, truth: Mapping[str, Callable[[int], tuple[float, float]]]) -> None:
        """`truth`: domain -> (dispatches so far -> (pass chance, seconds a group))."""
        self.policies, self.truth = policies, truth
        self.state = State()
        self.now = 1000.0
        self.done: list[tuple[float, str, Any]] = []
        self.rng = random.Random(7)
        self.taught: dict[str, int] = dict.fromkeys(policies.domains, 0)
        self.sent: dict[str, int] = dict.fromkeys(policies.domains, 0)
        self.numbers = dict.fromkeys(policies.domains, 0)
        self.total = 0

    def top_up(self, name: str, ready: int = 4) -> None:
        while self.state.ready_in(name) < ready:
            number = self.numbers[name]
            self.numbers[name] += 1
            task = Task(id=f"{name}-{number}", domain=name, prompt="2 + 2")
            fold(self.state, self.policies, TaskSubmitted(task=task), self.now)

    def run(self, dispatches: int) -> None:
        end = self.total + dispatches
        for name in self.policies.domains:
            self.top_up(name)
        while self.total < end:
            fold(
                self.state,
                self.policies,
                WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=32),
                self.now,
            )
            for effect in tick(self.state, self.policies, self.now):
                if isinstance(effect, Assign):
                    self.take(effect)
            when, _, event = heapq.heappop(self.done)
            self.now = max(self.now, when)
            self.finish(event)

    def take(self, effect: Assign) -> None:
        event = effect.event
        name = event.task.domain
        _, seconds = self.truth[name](self.total)
        heapq.heappush(self.done, (self.now + seconds * self.rng.uniform(0.8, 1.2), event.lease_id, event))
        self.sent[name] += 1
        self.total += 1
        self.top_up(name)

    def finish(self, event: Any) -> None:
        name = event.task.domain
        chance, _ = self.truth[name](self.total)
        passes = [float(self.rng.random() < chance) for _ in range(event.group_size)]
        self.taught[name] += max(passes) > min(passes)
        released = (Released(lease_id=event.lease_id, reason="finished"),)
        beat = WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=32, released=released)
        fold(self.state, self.policies, beat, self.now)
        for index, score in enumerate(passes):
            fold(self.state, self.policies, verified(event, index, score), self.now)

    def checkpoint(self, version: int) -> None:
        policy = PolicyRef(version=version, uri="v", digest="d")
        fold(self.state, self.policies, CheckpointPublished(run="run", policy=policy, step=version), self.now)

    def shares(self, counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, float]:
        new = {name: counts[name] - before[name] for name in counts}
        total = sum(new.values())
        return {name: count / total for name, count in new.items()}


def table(**fields: Any) -> Policies:
    domains = {
        f"{layer}.{number}": Policy(layer=layer, weight=1.0 + number)
        for layer in RATIOS
        for number in range(3)
    }
    fields = {"layers": RATIOS, "groups_per_step": 10**9, "half_life_s": 300.0, **fields}
    return Policies(domains=domains, **fields)


def quick(policies: Policies) -> Policies:
    """Updates as often as in a run; the training pace does not bind."""
    return msgspec.structs.replace(policies, groups_per_step=24, eta=10**9)


def layers(shares: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, share in shares.items():
        layer = name.partition(".")[0]
        found[layer] = found.get(layer, 0.0) + share
    return found


@pytest.mark.parametrize("how", ["weights", "variance"])
def test_what_is_left_after_filtering_is_what_was_configured(how: str) -> None:
    policies = quick(table(mix=how))
    chances = [0.5, 0.1, 0.9, 0.3, 0.7, 0.2, 0.85, 0.5, 0.6, 0.4, 0.15, 0.8]
    costs = [1.0, 9.0, 3.0, 2.0, 5.0, 1.5, 4.0, 8.0, 1.0, 2.0, 6.0, 3.0]
    truth = {
        name: (lambda _, pair=(chance, cost): pair)
        for name, chance, cost in zip(policies.domains, chances, costs, strict=True)
    }
    world = World(policies, truth)
    world.run(3000)
    before = dict(world.taught)
    wanted: dict[str, float] = dict.fromkeys(policies.domains, 0.0)
    for _ in range(100):
        world.run(100)
        for name, share in mix.wanted(world.state, policies, list(policies.domains)).items():
            wanted[name] += share / 100
    got = world.shares(world.taught, before)
    for layer, share in layers(got).items():
        assert share == pytest.approx(RATIOS[layer] / 10.0, abs=0.02), layers(got)
    for name, share in got.items():
        assert share == pytest.approx(wanted[name], abs=0.02), name
    assert invariant(world.state) == []
    real = mix.realised(world.state, list(policies.domains))
    assert sum(real.values()) == pytest.approx(1.0)
    assert sum(abs(real[name] - wanted[name]) for name in real) / 2 < 0.1


def test_a_domain_that_nobody_can_learn_keeps_its_floor_and_comes_back() -> None:
    policies = quick(table(mix="variance", layers={}))
    sick = "tool.0"

    def illness(total: int) -> tuple[float, float]:
        return (0.0 if total < 4000 else 0.5), 2.0

    truth = {name: (illness if name == sick else lambda _: (0.5, 2.0)) for name in policies.domains}
    world = World(policies, truth)
    world.run(1000)
    before = dict(world.sent)
    world.run(3000)
    ill = world.shares(world.sent, before)[sick]
    share = 1.0 / 24.0
    assert policies.mix_floor * share <= ill * 1.05
    assert ill < 0.5 * share
    world.run(1500)
    before = dict(world.sent)
    world.run(3000)
    assert world.shares(world.sent, before)[sick] == pytest.approx(share, rel=0.2)


def test_without_steering_nothing_changes() -> None:
    policies = quick(table(layers={}))
    world = World(policies, {name: lambda _: (0.5, 1.0) for name in policies.domains})
    world.run(500)
    assert {record.mix for record in world.state.domains.values()} == {1.0}
    assert world.state.meta.mixed == 0
    assert world.state.meta.observed > 400


def test_factors_are_part_of_the_state() -> None:
    policies = quick(table(mix="variance"))
    truth = {name: lambda _: (0.3, 2.0) for name in policies.domains}
    world = World(policies, truth)
    world.run(700)
    copy = restore(snapshot(world.state))
    assert {name: record.mix for name, record in copy.domains.items()} == {
        name: record.mix for name, record in world.state.domains.items()
    }
    other = World(policies, truth)
    other.run(700)
    assert snapshot(other.state) == snapshot(world.state)
    mix.update(copy, policies)
    mix.update(world.state, policies)
    assert snapshot(copy) == snapshot(world.state)


def test_a_new_factor_keeps_the_place_in_the_fair_order() -> None:
    policies = quick(table(mix="variance", layers={}))
    state = told(policies, {"tool.0": groups(0.5), "tool.1": groups(0.02)})
    for name, record in state.domains.items():
        record.shares["train"] = Share(usage=100.0 * policies.of(name).weight, at=0.0)
    for name in policies.domains:
        fold(state, policies, TaskSubmitted(task=Task(id=name, domain=name, prompt="p")), 0.0)
    state.meta.decisions = 1000
    mix.update(state, policies)
    assert state.domains["tool.0"].mix > 1.5 * state.domains["tool.1"].mix
    for name, record in state.domains.items():
        weight = policies.of(name).weight * record.mix
        assert record.shares["train"].usage / weight == pytest.approx(100.0)


def test_the_first_groups_weigh_equally() -> None:
    evidence = Evidence()
    for scores in ([0.0, 1.0], [1.0, 1.0], [0.5, 0.5]):
        evidence = mix.seen(evidence, scores, cost_s=3.0, degenerate=1e-6, clock=evidence.groups + 1)
    assert evidence.mean == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    assert evidence.variance == pytest.approx(0.5 / 3)
    assert evidence.informative == pytest.approx(1 / 3)
    assert evidence.cost_s == pytest.approx(3.0)


def test_easy_and_hard_domains_are_at_the_floor() -> None:
    policies = table(mix="variance", layers={})
    names = list(policies.domains)
    for mean in (0.0, 0.02, 0.98, 1.0):
        state = told(policies, {"tool.0": groups(mean)})
        assert mix.appeal(state.domains["tool.0"].evidence, policies) == policies.mix_floor
        share = mix.dispatched(state, policies, names)["tool.0"]
        assert policies.mix_floor / 24.0 <= share < 1.0 / 24.0


evidences = st.builds(
    Evidence,
    groups=st.integers(0, 100),
    mean=st.floats(0.0, 1.0),
    variance=st.floats(0.0, 0.3),
    informative=st.floats(0.0, 1.0),
    cost_s=st.floats(0.0, 1e5),
    recent=st.floats(0.0, 1e4),
)
policies_drawn = st.builds(
    lambda weights, **fields: Policies(
        domains={
            f"{layer}.{number}": Policy(layer=layer, weight=weight)
            for number, (layer, weight) in enumerate(weights)
        },
        **fields,
    ),
    weights=st.lists(
        st.tuples(st.sampled_from(sorted(RATIOS)), st.floats(1e-3, 1000.0)), min_size=1, max_size=12
    ),
    mix=st.sampled_from(["weights", "variance"]),
    layers=st.sampled_from([{}, RATIOS]),
    mix_floor=st.floats(0.01, 1.0),
)


@settings(max_examples=150, deadline=None)
@given(policies=policies_drawn, data=st.data())
def test_shares_are_positive_add_up_and_keep_the_floor(policies: Policies, data: st.DataObject) -> None:
    names = sorted(policies.domains)
    state = told(policies, {name: data.draw(evidences) for name in names})
    want = mix.wanted(state, policies, names)
    sent = mix.dispatched(state, policies, names)
    assert sum(want.values()) == pytest.approx(1.0)
    assert sum(sent.values()) == pytest.approx(1.0)
    assert min(sent.values()) > 0.0
    base = mix.wanted(told(policies, {}), policies, names)
    for name in names:
        assert sent[name] >= policies.mix_floor * base[name] * (1 - 1e-9)
    if policies.layers:
        there = {name.partition(".")[0] for name in names}
        total = sum(RATIOS[layer] for layer in there)
        for layer, share in layers(want).items():
            assert share == pytest.approx(RATIOS[layer] / total)
    for name in names:
        fold(state, policies, TaskSubmitted(task=Task(id=name, domain=name, prompt="p")), 0.0)
    state.meta.decisions = 10**6
    mix.update(state, policies)
    factors = [record.mix for record in state.domains.values()]
    assert all(0.0 < factor < float("inf") for factor in factors)


def test_settings_that_cannot_be_mixed_by_are_refused_with_a_line() -> None:
    card = parse_card(
        'name = "a"\nlayer = "tool"\nsummary = "s"\ngenerator = "m:f"\n[verifier]\nfamily = "call"', "test"
    )
    for argument, line in (
        (("--scheduler.layers", "{foundation = 1}"), "no ratio for layer tool, which domain a is of"),
        (("--scheduler.mix_window", "[0.9, 0.1]"), "holds no score"),
    ):
        with pytest.raises(SettingsError, match=line):
            policies_of({"a": card}, resolve(argument))
    for argument in (("--scheduler.layers", "{tool = inf}"), ("--scheduler.mix_floor", "0")):
        with pytest.raises(SettingsError):
            resolve(argument)
    table = policies_of({"a": card}, resolve(["--scheduler.layers", "{tool = 2}"]))
    assert (table.mix, table.layers) == ("weights", {"tool": 2.0})
