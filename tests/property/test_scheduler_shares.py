"""Shares between domains are as configured, over ten thousand dispatches and from the moment a domain comes."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cards import Deadline, Retry, Timeouts
from schemas.heartbeats import WorkerHeartbeat
from schemas.tasks import (
    Task,
    TaskSubmitted,
)
from services.scheduler.effects import Assign
from services.scheduler.fold import fold, tick
from services.scheduler.policies import Policies, Policy
from services.scheduler.state import State
from tests.verdicts import judged

LONG = Timeouts(lease_s=1e6, attempt_s=1e6)


class Mill:
    """Domains that always have work, and workers that take as long as a domain's tasks take."""

    def __init__(self, table: Policies, costs: dict[str, float], slots: int, *, failing: float = 0.0) -> None:
        self.table, self.costs, self.slots, self.failing = table, costs, slots, failing
        self.state, self.now, self.number = State(), 0.0, 0
        self.rng = random.Random(1)
        self.queued: Counter[str] = Counter()
        self.given: Counter[str] = Counter()
        """Leases by domain, retries included."""
        self.service: Counter[str] = Counter()
        """Milliseconds of service by domain."""
        self.running: list[tuple[float, int, str, int, str, str]] = []
        beat = WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=slots)
        fold(self.state, table, beat, 0.0)

    def run(self, leases: int, names: list[str]) -> None:
        """Until so many more leases have been given, with work for these domains."""
        until = self.given.total() + leases
        while self.given.total() < until:
            for name in names:
                while self.queued[name] < 2 * self.slots:
                    task = Task(id=f"t{self.number}", domain=name, prompt="p")
                    fold(self.state, self.table, TaskSubmitted(task=task), self.now)
                    self.number += 1
                    self.queued[name] += 1
            for effect in tick(self.state, self.table, self.now):
                if isinstance(effect, Assign):
                    self._begin(effect)
            self.now = self.running[0][0]
            while self.running and self.running[0][0] <= self.now:
                self._end(*heapq.heappop(self.running)[2:])

    def _begin(self, effect: Assign) -> None:
        domain = self.state.live[effect.task_id].domain
        self.given[domain] += 1
        self.queued[domain] -= effect.attempt == 1
        self.service[domain] += int(1000 * self.costs[domain])
        self.number += 1
        ends = (self.now + self.costs[domain], self.number, effect.task_id, effect.attempt, effect.lease_id)
        heapq.heappush(self.running, (*ends, domain))

    def _end(self, task_id: str, attempt: int, lease: str, _: str) -> None:
        fails = self.rng.random() < self.failing
        scores = [0.0, 0.0] if fails else [1.0, 0.5]  # a group that teaches, unless it fails
        for index in range(self.table.group_size):
            event = judged(task_id, scores[index], attempt, index, lease=lease)
            fold(self.state, self.table, event, self.now)


def mill(policies: dict[str, Policy], costs: dict[str, float], slots: int, **fields: Any) -> Mill:
    failing = fields.pop("failing", 0.0)
    table = Policies(
        domains={
            name: msgspec.structs.replace(
                policy, deadline=Deadline(estimate_s=costs[name]), timeouts=LONG, retry=FORGIVING
            )
            for name, policy in policies.items()
        },
        group_size=2,
        eta=1 << 40,
        ready_cap=1 << 40,
        worker_timeout_s=1e12,
        worker_memory_s=1e12,
        **fields,
    )
    return Mill(table, costs, slots, failing=failing)


FORGIVING = Retry(failures=50, backoff_s=0.0)
WEIGHTS = st.lists(st.integers(1, 9), min_size=2, max_size=6)


def weighted(weights: list[int]) -> dict[str, Policy]:
    return {f"d{number}": Policy(weight=float(weight)) for number, weight in enumerate(weights)}


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WEIGHTS, st.integers(1, 16), st.integers(0, 3), st.sampled_from([0.0, 0.3]))
def test_shares_are_as_configured_over_ten_thousand_dispatches(
    weights: list[int], slots: int, spread: int, failing: float
) -> None:
    """Service is what is shared: domains whose attempts take longer get fewer of them, in proportion; retries count as others."""
    policies = weighted(weights)
    costs = {name: float(1 + number % (spread + 1)) for number, name in enumerate(policies)}
    made = mill(policies, costs, slots, half_life_s=3000.0, failing=failing)
    made.run(10_000, list(policies))
    whole = made.service.total()
    for name, policy in policies.items():
        assert abs(made.service[name] / whole - policy.weight / sum(weights)) < 0.02


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WEIGHTS, st.integers(1, 16), st.integers(1, 4), st.integers(0, 3))
def test_layers_and_weights_share_groups_as_configured(
    weights: list[int], slots: int, ratio: int, spread: int
) -> None:
    """With ratios between layers it is groups that are shared: between layers by ratio, within each by weight."""
    layers = {"foundation": float(ratio), "tool": 1.0}
    policies = {
        name: msgspec.structs.replace(policy, layer="tool" if number % 2 else "foundation")
        for number, (name, policy) in enumerate(weighted(weights).items())
    }
    costs = {name: float(1 + number % (spread + 1)) for number, name in enumerate(policies)}
    made = mill(policies, costs, slots, half_life_s=3000.0, layers=layers)
    made.run(10_000, list(policies))
    for name, policy in policies.items():
        within = sum(other.weight for other in policies.values() if other.layer == policy.layer)
        wanted = layers[policy.layer] / sum(layers.values()) * policy.weight / within
        assert abs(made.given[name] / made.given.total() - wanted) < 0.02, name


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WEIGHTS, st.integers(1, 16), st.booleans())
def test_a_domain_that_comes_late_gets_its_share_from_then_on(
    weights: list[int],
    slots: int,
    before: bool,  # noqa: FBT001
) -> None:
    """It catches up on its share of what still counts, `half_life / ln 2` seconds of all slots, and on nothing before that.

    `before`: it was there at the beginning and then away, so it is no more punished for what it had than a new one is paid.
    """
    policies, half_life = weighted(weights), 30.0
    costs = dict.fromkeys(policies, 1.0)
    made = mill(policies, costs, slots, half_life_s=half_life)
    late, *others = policies
    share = policies[late].weight / sum(weights)
    if before:
        made.run(3000, [late, *others])
    made.run(4000, others)
    counted, begun = made.given[late], made.given.total()
    made.run(3000, list(policies))
    caught_up = made.given[late] - counted - share * (made.given.total() - begun)
    assert caught_up <= share * half_life / math.log(2.0) * slots + 2 * slots + 0.02 * 3000
    counted, begun = made.given[late], made.given.total()
    made.run(10_000, list(policies))
    assert abs((made.given[late] - counted) / (made.given.total() - begun) - share) < 0.02
