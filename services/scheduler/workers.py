"""Heartbeats. Invariant: a lease is extended only by a worker that names it, and only while it is the task's current one."""

from __future__ import annotations

from schemas.heartbeats import WorkerHeartbeat
from services.scheduler.attempts import gone, released, renewed
from services.scheduler.blame import known
from services.scheduler.effects import Effect
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, TaskEntry, Worker
from services.scheduler.state import State


def heartbeat(
    state: State, policies: Policies, event: WorkerHeartbeat, now: float, at: float
) -> list[Effect]:
    """Renew the leases a worker names, take back those it released, note its credits.

    `at` is when the heartbeat counts from: `now`, or its record's time while a backlog is read.
    """
    before = state.workers.get(event.worker)
    if event.ended:
        return _ended(state, policies, event, before, now)
    effects: list[Effect] = []
    if before is not None and 0.0 < before.started_at < event.started_at:
        effects += gone(state, policies, before, event.leases, now, "")
    state.workers[event.worker] = Worker(
        name=event.worker,
        service=event.service,
        pool=event.pool,
        slots=event.slots,
        tokens=event.tokens,
        draining=event.draining,
        policy_version=event.policy_version,
        seen_at=at if before is None else max(at, before.seen_at),
        started_at=event.started_at,
        pid=event.pid,
        holds=len(event.leases),
        engine=known(state, event),
    )
    state.changed.add("worker:" + event.worker)
    for lease in event.leases:
        entry = _held(state, lease)
        if entry is not None:
            effects += renewed(state, policies, entry, event.worker, now, at)
    for given in event.released:
        entry = _held(state, given.lease_id)
        if entry is not None:
            entry.worker = event.worker
            effects += released(state, policies, entry, given, now, draining=event.draining)
    return effects


def _ended(
    state: State, policies: Policies, event: WorkerHeartbeat, before: Worker | None, now: float
) -> list[Effect]:
    """A worker's process has ended, as whoever watches it says: once, and only if it is the process that we know of."""
    if before is None:
        state.count("end_of_unknown_worker")
        return []
    if event.pid and before.pid and event.pid != before.pid:
        state.count(
            "end_of_former_process"
        )  # its successor has been heard of: its leases have been taken care of
        return []
    del state.workers[event.worker]
    state.changed.add("worker:" + event.worker)
    return gone(state, policies, before, (), now, event.ended)


def _held(state: State, lease: str) -> TaskEntry | None:
    task_id = state.leases.get(lease)
    entry = None if task_id is None else state.live[task_id]
    if entry is None or entry.state not in HELD:
        state.count("heartbeat_of_other_lease")
        return None
    return entry
