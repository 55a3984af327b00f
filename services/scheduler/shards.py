"""Which events concern a shard. Invariant: every task belongs to exactly one shard, for as long as the log lives.

A shard reads all inputs and leaves out what is of domains that others own, before the fold and without counting it. Pure:
what is left out depends on the event, the cards and, where an event names leases or tasks only, on the state before the batch.
"""

from __future__ import annotations

import msgspec

from schemas.base import Event
from schemas.heartbeats import WorkerHeartbeat
from schemas.tasks import TaskCancelled, TaskSubmitted
from services.scheduler.policies import Policies
from services.scheduler.state import State


def concerning(state: State, policies: Policies, event: Event) -> Event | None:
    """The event as this shard takes it: whole, with the leases of others left out, or None if it is of another shard."""
    match event:
        case TaskSubmitted():
            return event if policies.owns(event.task.domain) else None
        case WorkerHeartbeat():
            return _own_leases(state, event)
        case TaskCancelled():
            return event  # its task may come in this very batch; whoever has it not leaves it
    domain: str = getattr(event, "domain", "")
    if domain:
        return event if policies.owns(domain) else None
    task_id: str = getattr(event, "task_id", "")
    return event if not task_id or task_id in state.live or task_id in state.ended else None


def _own_leases(state: State, event: WorkerHeartbeat) -> WorkerHeartbeat:
    leases = tuple(lease for lease in event.leases if lease in state.leases)
    released = tuple(given for given in event.released if given.lease_id in state.leases)
    if len(leases) == len(event.leases) and len(released) == len(event.released):
        return event
    return msgspec.structs.replace(event, leases=leases, released=released)
