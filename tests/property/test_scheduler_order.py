"""Order and quotas under arbitrary histories: nobody starves, shares are as configured, limits hold, records alone decide."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from typing import Any, NamedTuple

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cards import Deadline, Retry, Timeouts
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.tasks import (
    DomainDrained,
    DomainPaused,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
    Task,
    TaskCancelled,
    TaskSubmitted,
)
from schemas.verdicts import Part, scored
from services.scheduler.cohorts import limits_of, members, used
from services.scheduler.effects import Assign
from services.scheduler.fold import Batch, Input, fold, step, tick
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State

LONG = Timeouts(lease_s=1e6, attempt_s=1e6)


def verdict(name: str, attempt: int, lease: str, score: float) -> TrajectoryVerified:
    return TrajectoryVerified(
        trajectory_id=trajectory_id(name, attempt, 0),
        task_id=name,
        domain="a",
        purpose="train",
        attempt=attempt,
        group_id="g",
        group_size=1,
        index=0,
        lease_id=lease,
        content="c",
        verdict=scored([Part(name="p", weight=1.0, score=score)]),
    )


class Waiting(NamedTuple):
    """What is known of a ready task before a turn."""

    domain: str
    pool: str
    since: float
    priority: int
    started: bool


def ready(state: State) -> dict[str, Waiting]:
    return {entry.id: _waiting(entry) for entry in state.live.values() if entry.state == "ready"}


def _waiting(entry: TaskEntry) -> Waiting:
    return Waiting(entry.domain, entry.pool, entry.eligible_at, entry.priority, entry.attempt > 0)


def _in_order(
    state: State, waiting: dict[str, Waiting], caps: dict[str, float], effects: list[Any]
) -> Counter[str]:
    """No lease goes to a task while one of its lane waits that it must let go first; how often each rule was put to the test.

    The bound: who goes became eligible at most the cap, and a second for each point of priority it is ahead, later than who
    stays. A started one that stays is passed by nobody that became eligible later, priority apart: it has no slack any more.
    """
    seen = Counter[str]()
    for effect in effects:
        if not isinstance(effect, Assign):
            continue
        if effect.task_id not in waiting:  # its backoff ended in this very tick; it has had an attempt
            entry = state.live[effect.task_id]
            waiting[entry.id] = _waiting(entry)
        goes = waiting.pop(effect.task_id)
        for other, stays in waiting.items():
            if (stays.domain, stays.pool) != (goes.domain, goes.pool):
                continue
            ahead = goes.priority - stays.priority
            cap = 0.0 if stays.started else caps[goes.domain]
            assert goes.since <= stays.since + cap + ahead + 1e-9, f"{effect.task_id} went before {other}"
            seen["started stays" if stays.started else "fresh stays"] += 1
            seen["another priority"] += ahead != 0
    return seen


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 50.0),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["standard", "fast"]),
            st.floats(0.1, 500.0),
            st.booleans(),
            st.one_of(st.just(0), st.integers(-100, 100)),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.floats(0.0, 20.0), st.one_of(st.just(0.0), st.floats(1.0, 300.0))),
        min_size=3,
        max_size=3,
    ),
)
def test_no_task_is_passed_by_one_of_its_lane_that_came_later_than_the_cap(
    arrivals: list[tuple[float, str, str, float, bool, int]], slots: int, knobs: list[tuple[float, float]]
) -> None:
    """Whatever the estimates, priorities, deadline settings, failures and other domains: each dispatch looks at the lane."""
    passed(arrivals, slots, knobs)


def test_both_rules_of_the_lane_are_put_to_the_test() -> None:
    """The property above is not held by runs in which nothing happens."""
    rng = random.Random(7)
    seen = Counter[str]()
    for _ in range(20):
        arrivals = [
            (
                rng.uniform(0.0, 9.0),
                rng.choice("abc"),
                rng.choice(["standard", "fast"]),
                rng.uniform(0.1, 99.0),
                rng.random() < 0.5,
                rng.choice([0, rng.randint(-100, 100)]),
            )
            for _ in range(40)
        ]
        seen += passed(arrivals, 1, [(4.0, 60.0), (1.0, 20.0), (0.0, 0.0)])
    assert seen["started stays"] > 30
    assert seen["fresh stays"] > 500
    assert seen["another priority"] > 500


def passed(
    arrivals: list[tuple[float, str, str, float, bool, int]], slots: int, knobs: list[tuple[float, float]]
) -> Counter[str]:
    retry = Retry(failures=2, backoff_s=0.0)
    table = Policies(
        domains={
            name: Policy(weight=weight, retry=retry, deadline=Deadline(slack=slack, cap_s=cap), timeouts=LONG)
            for (name, weight), (slack, cap) in zip((("a", 1.0), ("b", 3.0), ("c", 0.1)), knobs, strict=True)
        },
        group_size=1,
        eta=10_000,
        worker_timeout_s=1e9,
    )
    caps = {name: policy.deadline.cap_s for name, policy in table.domains.items()}
    state, now, seen = State(), 0.0, Counter[str]()
    failing: set[str] = set()
    for pool in ("standard", "fast"):
        beat = WorkerHeartbeat(worker=pool, service="sampler", pool=pool, slots=slots)
        fold(state, table, beat, now)

    def turn() -> None:
        waiting = ready(state)
        seen.update(_in_order(state, waiting, caps, tick(state, table, now)))

    def finish() -> None:
        held = [entry for entry in state.live.values() if entry.state in HELD]
        if held:
            first = min(held, key=lambda entry: entry.order)
            score = 0.0 if first.id in failing and first.attempt < 3 else 1.0
            fold(state, table, verdict(first.id, first.attempt, first.lease_id, score), now)

    for number, (gap, domain, pool, estimate_s, fails, priority) in enumerate(arrivals):
        now += gap
        record = state.domain(domain)
        record.seconds, record.estimate_s = [estimate_s], estimate_s
        name = f"t{number}"
        if fails:
            failing.add(name)
        task = Task(id=name, domain=domain, prompt="p", pool=pool)
        fold(state, table, TaskSubmitted(task=task, priority=priority), now)
        turn()
        if number % 3 == 0:
            finish()
    for _ in range(10 * len(arrivals)):
        if not state.live:
            break
        now += 1.0
        finish()
        turn()
    assert state.live == {}
    return seen


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
            event = verdict(task_id, attempt, lease, scores[index])
            name = trajectory_id(task_id, attempt, index)
            event = msgspec.structs.replace(event, index=index, trajectory_id=name)
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


TABLE = Policies(
    domains={
        "a": Policy(nominal=3, cohort="x", lend=2),
        "b": Policy(nominal=2, cohort="x", borrow=2, slots=2),
        "c": Policy(nominal=0, cohort="x", weight=5.0),
        "d": Policy(nominal=3, slots=3),
        "e": Policy(weight=2.0),
    },
    group_size=1,
    groups_per_step=6,
    eta=2,
    verify_backlog=4,
    ready_cap=30,
)
names = st.integers(0, 30).map(lambda number: f"t{number}")
domains = st.sampled_from(["a", "b", "c", "d", "e"])
pools = st.sampled_from(["standard", "fast"])


def released(worker: str, pool: str, slots: int, tokens: int, service: Any) -> WorkerHeartbeat:
    return WorkerHeartbeat(worker=worker, service=service, pool=pool, slots=slots, tokens=tokens)


events = st.one_of(
    st.builds(
        lambda name, domain, pool, purpose: TaskSubmitted(
            task=Task(id=name, domain=domain, prompt="p", pool=pool, purpose=purpose)
        ),
        names,
        domains,
        pools,
        st.sampled_from(["train", "train", "eval"]),
    ),
    st.builds(lambda name, score: ("verdict", name, score), names, st.sampled_from([0.0, 1.0])),
    st.builds(lambda name: ("release", name), names),
    st.builds(
        released,
        st.sampled_from(["v", "w"]),
        pools,
        st.integers(0, 6),
        st.sampled_from([0, 0, 200]),
        st.sampled_from(["sampler", "sampler", "verifier"]),
    ),
    st.builds(lambda name: TaskCancelled(task_id=name), names),
    st.builds(
        lambda kind, domain: kind(domain=domain), st.sampled_from([DomainPaused, DomainResumed]), domains
    ),
    st.builds(lambda domain: DomainDrained(domain=domain), domains),
    st.builds(lambda kind, pool: kind(pool=pool), st.sampled_from([PoolDrained, PoolResumed]), pools),
    st.builds(
        lambda domain, nominal, borrow, lend: QuotaChanged(
            domain=domain, nominal=nominal, borrow=borrow, lend=lend
        ),
        domains,
        st.integers(0, 4),
        st.sampled_from([None, 0, 1]),
        st.sampled_from([None, 0, 1]),
    ),
)
plans = st.lists(st.tuples(st.lists(events, max_size=8), st.sampled_from([0.0, 0.5, 5.0, 40.0])), max_size=12)


def resolved(state: State, event: Any) -> Any:
    """Verdicts and releases are of the lease that the task has now."""
    if not isinstance(event, tuple):
        return event
    entry = state.live.get(event[1])
    lease, attempt = ("gone", 1) if entry is None else (entry.lease_id, max(1, entry.attempt))
    if event[0] == "verdict":
        return verdict(event[1], attempt, lease, event[2])
    return WorkerHeartbeat(
        worker="z", service="sampler", released=(Released(lease_id=lease, reason="finished"),)
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans)
def test_limits_hold_and_what_is_decided_follows_from_the_records_alone(
    plan: list[tuple[list[Any], float]],
) -> None:
    """The twin is taken apart into records and put together again before every batch: parked domains and keys are its own."""
    state, twin, now = State(), State(), 1000.0
    for seq, (chosen, seconds) in enumerate(plan, start=1):
        now += seconds
        before = {name: used(state, name) for name in TABLE.domains}
        total = sum(before[name] for name in members(TABLE, "x"))
        inputs = tuple(Input(event=resolved(state, event), at=now) for event in chosen)
        batch = Batch(seq=seq, now=now, inputs=inputs)
        effects = step(state, TABLE, batch)
        twin = restore(snapshot(twin))
        assert step(twin, TABLE, batch) == effects
        assert invariant(state) == []
        for name in TABLE.domains:
            assert used(state, name) <= max(before[name], limits_of(state, TABLE, name).most)
        owned = sum(limits_of(state, TABLE, name).nominal for name in members(TABLE, "x"))
        assert sum(used(state, name) for name in members(TABLE, "x")) <= max(total, owned)
    assert snapshot(state) == snapshot(twin)
