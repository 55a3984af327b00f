"""Quotas and lends hold under arbitrary histories, and records alone decide."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.heartbeats import Released, WorkerHeartbeat
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
from services.scheduler.cohorts import limits_of, members, used
from services.scheduler.fold import Batch, Input, step
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.verdicts import judged

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
        return judged(event[1], event[2], attempt, lease=lease)
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
