"""Dispatch on credits. Invariant: a lease is given only against a free slot, within quota, and for training within pacing.

Evaluation tasks go first (few, and a measurement that waits for training to run dry never comes); within each class the
domain with the smallest fair key gives its lane's head.
"""

from __future__ import annotations

import heapq

import msgspec

from schemas.assignments import AttemptAssigned
from schemas.ids import group_id, lease_id
from schemas.tasks import Purpose, Task
from services.scheduler.admission import train_allowance
from services.scheduler.effects import Assign, Effect
from services.scheduler.moves import move
from services.scheduler.order import charge, fair_key
from services.scheduler.policies import Policies
from services.scheduler.quotas import free_slots, room
from services.scheduler.state import Lane, State, TaskEntry, head

CLASSES: tuple[Purpose, ...] = ("eval", "train")
_task = msgspec.msgpack.Decoder(Task)


def dispatch(state: State, policies: Policies, now: float) -> list[Effect]:
    """Give out leases until slots, quotas, pacing or ready tasks run out."""
    effects: list[Effect] = []
    for pool in sorted({pool for pool, _ in state.lanes}):
        free = free_slots(state, policies, pool, now)
        for purpose in CLASSES:
            limit = free if purpose == "eval" else min(free, train_allowance(state, policies))
            lanes = state.lanes.get((pool, purpose))
            if limit and lanes:
                given = _serve(state, policies, lanes, purpose, now, limit=limit)
                free -= sum(isinstance(effect, Assign) for effect in given)
                effects += given
    return effects


def _serve(
    state: State, policies: Policies, lanes: dict[str, Lane], purpose: Purpose, now: float, *, limit: int
) -> list[Effect]:
    effects: list[Effect] = []
    order = [
        (fair_key(state, policies, domain, purpose, now), domain)
        for domain, lane in lanes.items()
        if lane.ready and room(state, policies, domain) > 0
    ]
    heapq.heapify(order)
    while order and limit:
        _, domain = order[0]
        entry = head(state, lanes[domain])
        if entry is None:
            heapq.heappop(order)
            continue
        effects += _lease(state, policies, entry, now)
        limit -= 1
        if lanes[domain].ready and room(state, policies, domain) > 0:
            heapq.heapreplace(order, (fair_key(state, policies, domain, purpose, now), domain))
        else:
            heapq.heappop(order)
    return effects


def _lease(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[Effect]:
    policy = policies.of(entry.domain)
    meta = state.meta
    heapq.heappop(state.lane(entry).heap)
    entry.attempt = 1 + entry.failures + entry.losses + entry.drains
    lease = lease_id(entry.id, entry.attempt)
    task = _task.decode(entry.body)
    entry.lease_id = lease
    entry.leased_at = now
    entry.results = []
    entry.charged_s = 0.0
    charge(state, policies, entry, entry.estimate_s, now)
    until = now + policy.timeouts.lease_s
    announced = move(state, entry, "leased", now, due_at=until)
    meta.decisions += 1
    assigned = Assign(
        event=AttemptAssigned(
            lease_id=lease,
            lease_expires_at=until,
            task=task,
            attempt=entry.attempt,
            group_id=group_id(entry.id, entry.attempt),
            group_size=entry.group_size,
            sampling=task.sampling or policy.sampling,
            pool=entry.pool,
            seq=meta.decisions,
        ),
        trace=entry.trace,
    )
    return [assigned, announced]
