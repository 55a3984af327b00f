"""Order and quotas under arbitrary histories: nobody starves, shares are as configured, limits hold, records alone decide."""

from __future__ import annotations

from collections import Counter
from typing import Any

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
from services.scheduler.records import HELD
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State

CAP = 60.0
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


def ready(state: State) -> dict[str, tuple[str, str, float]]:
    return {
        entry.id: (entry.domain, entry.pool, entry.eligible_at)
        for entry in state.live.values()
        if entry.state == "ready"
    }


def _in_order(state: State, waiting: dict[str, tuple[str, str, float]], effects: list[Any]) -> None:
    """No lease goes to a task while one of its lane waits that was eligible more than the cap before."""
    for effect in effects:
        if not isinstance(effect, Assign):
            continue
        if effect.task_id not in waiting:  # its backoff ended in this very tick
            entry = state.live[effect.task_id]
            waiting[entry.id] = (entry.domain, entry.pool, entry.eligible_at)
        domain, pool, eligible_at = waiting.pop(effect.task_id)
        for other, (lane_domain, lane_pool, since) in waiting.items():
            if (lane_domain, lane_pool) == (domain, pool):
                assert eligible_at <= since + CAP, f"{effect.task_id} went before {other}"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 50.0),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["standard", "fast"]),
            st.floats(0.1, 500.0),
            st.booleans(),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_no_task_is_passed_by_one_of_its_lane_that_came_later_than_the_cap(
    arrivals: list[tuple[float, str, str, float, bool]], slots: int
) -> None:
    """Whatever the estimates, the failures and the other domains: at each dispatch the ready tasks of the lane are looked at."""
    retry = Retry(failures=2, backoff_s=0.0)
    table = Policies(
        domains={
            name: Policy(weight=weight, retry=retry, deadline=Deadline(cap_s=CAP), timeouts=LONG)
            for name, weight in (("a", 1.0), ("b", 3.0), ("c", 0.1))
        },
        group_size=1,
        eta=10_000,
        worker_timeout_s=1e9,
    )
    state, now = State(), 0.0
    failing: set[str] = set()
    for pool in ("standard", "fast"):
        beat = WorkerHeartbeat(worker=pool, service="sampler", pool=pool, slots=slots)
        fold(state, table, beat, now)

    def turn() -> None:
        waiting = ready(state)
        _in_order(state, waiting, tick(state, table, now))

    def finish() -> None:
        held = [entry for entry in state.live.values() if entry.state in HELD]
        if held:
            first = min(held, key=lambda entry: entry.order)
            score = 0.0 if first.id in failing and first.attempt < 3 else 1.0
            fold(state, table, verdict(first.id, first.attempt, first.lease_id, score), now)

    for number, (gap, domain, pool, estimate_s, fails) in enumerate(arrivals):
        now += gap
        record = state.domain(domain)
        record.seconds, record.estimate_s = [estimate_s], estimate_s
        name = f"t{number}"
        if fails:
            failing.add(name)
        fold(state, table, TaskSubmitted(task=Task(id=name, domain=domain, prompt="p", pool=pool)), now)
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


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 16), st.integers(0, 3))
def test_shares_are_as_configured_over_ten_thousand_dispatches(
    weights: list[int], slots: int, spread: int
) -> None:
    """Service is what is shared: domains whose attempts take longer get fewer of them, in proportion."""
    names = [f"d{number}" for number in range(len(weights))]
    costs = {name: float(1 + number % (spread + 1)) for number, name in enumerate(names)}
    table = Policies(
        domains={
            name: Policy(weight=float(weight), deadline=Deadline(estimate_s=costs[name]), timeouts=LONG)
            for name, weight in zip(names, weights, strict=True)
        },
        group_size=1,
        eta=1 << 40,
        ready_cap=1 << 40,
        worker_timeout_s=1e12,
        worker_memory_s=1e12,
        half_life_s=3000.0,
    )
    state, now, number = State(), 0.0, 0
    fold(state, table, WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=slots), now)
    queued: Counter[str] = Counter()
    service: Counter[str] = Counter()
    running: list[tuple[float, str, str, str]] = []
    dispatched = 0
    while dispatched < 10_000:
        for name in names:
            while queued[name] < 2 * slots:
                task = Task(id=f"t{number}", domain=name, prompt="p")
                fold(state, table, TaskSubmitted(task=task), now)
                number += 1
                queued[name] += 1
        for effect in tick(state, table, now):
            if isinstance(effect, Assign):
                domain = state.live[effect.task_id].domain
                dispatched += 1
                queued[domain] -= 1
                service[domain] += int(costs[domain])
                running.append((now + costs[domain], effect.task_id, effect.lease_id, domain))
        running.sort()
        now = running[0][0]
        while running and running[0][0] <= now:
            _, task_id, lease, _ = running.pop(0)
            fold(state, table, verdict(task_id, 1, lease, 1.0), now)
    whole = service.total()
    for name, weight in zip(names, weights, strict=True):
        assert abs(service[name] / whole - weight / sum(weights)) < 0.02


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
        for index in (state.occupied, state.held):
            for leases in index.values():
                assert leases.slots == sum(slots for slots, _ in leases.values())
                assert leases.tokens == sum(tokens for _, tokens in leases.values())
    assert snapshot(state) == snapshot(twin)
