"""Work handed to samplers. Invariant: one lease an attempt; work is valid only while its lease is."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import Event
from schemas.tasks import Sampling, Task


class AttemptAssigned(Event, frozen=True, kw_only=True):
    """Sample a group for one attempt, under a lease."""

    lease_id: str
    lease_expires_at: float
    """Seconds since the epoch by the scheduler's clock; heartbeats that name the lease extend it."""
    lease_s: Annotated[float, Meta(ge=0.0)] = 0.0
    """Seconds that the lease lasts from its reception, by the worker's own clock; 0: not said."""
    attempt_s: Annotated[float, Meta(ge=0.0)] = 0.0
    """Seconds from its reception after which the attempt is over however often its lease is renewed; 0: not said."""
    task: Task
    attempt: Annotated[int, Meta(ge=1)]
    group_id: str
    group_size: Annotated[int, Meta(ge=1)]
    sampling: Sampling
    pool: str = "standard"
    company: Annotated[int, Meta(ge=0)] = 0
    """Groups that may be in the engine while this one is, itself included; 0: any number. Above 0 it is under suspicion of
    ending its worker, and is begun only when a heartbeat has said which groups are in the engine with it."""
    seq: int = 0
    """Order of the scheduler's decision."""
    shard: int = 0
    """Part of the domains that the scheduler decides for."""
    epoch: int = 0
    """Incarnation of that shard's scheduler; what comes from an older one than was seen before is ignored."""


class AttemptRevoked(Event, frozen=True, kw_only=True):
    """Stop working under a lease; results that carry it are ignored from now on."""

    lease_id: str
    task_id: str
    attempt: int
    reason: Literal["cancelled", "expired", "drained", "superseded"]
    shard: int = 0
    epoch: int = 0
