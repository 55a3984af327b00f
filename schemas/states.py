"""Current state of tasks, for observers. Invariant: derived from the scheduler's fold, newest record of a key wins."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import Event
from schemas.tasks import Purpose

State = Literal[
    "ready",
    "leased",
    "running",
    "verifying",
    "backoff",
    "waiting",
    "succeeded",
    "failed",
    "degraded",
    "dead",
    "cancelled",
    "rejected",
]
TERMINAL: frozenset[State] = frozenset({"succeeded", "failed", "degraded", "dead", "cancelled", "rejected"})
"""`rejected`: never admitted (unknown domain, conflicting idempotency key); counts as submitted and ended."""
UNDER_WAY: frozenset[State] = frozenset({"leased", "running", "verifying"})
"""States in which an attempt is under way."""

Cause = Literal[
    "",
    "failed",
    "timeout",
    "lost",
    "killed",
    "drained",
    "replaced",
    "children",
    "cancelled",
    "unknown_domain",
    "unknown_pool",
    "too_large",
    "domain_full",
    "key_reused",
    "id_taken",
    "underivable",
    "never_fits",
]
"""`killed`: the task ended its workers, out of memory mostly. From `unknown_domain` on: why a submission was rejected."""


class TaskState(Event, frozen=True, kw_only=True, gc=False):
    """Where one task is."""

    task_id: str
    domain: str
    purpose: Purpose
    state: State
    attempt: Annotated[int, Meta(ge=0)] = 0
    failures: int = 0
    losses: int = 0
    """Attempts lost to infrastructure."""
    timeouts: int = 0
    """Attempts that ran and did not finish in their time."""
    score: float | None = None
    """Mean score of the deciding attempt's valid members, or what the children's scores join to."""
    reason: str = ""
    cause: Cause = ""
    """What the last attempt, or the task, ended of: the reason in one word, for programs."""
    level: int = 0
    """Rungs down the card's ladder."""
    parent: str = ""
    children: tuple[str, ...] = ()
    batch: str = ""
    kind: str = ""
    """What its estimate was asked for: the task's own word, or the quarter of its difficulty. Empty once it has ended."""
    estimate_s: Annotated[float, Meta(ge=0.0)] = 0.0
    """Seconds that an attempt was expected to hold a slot when the task came in; they decide its place while it lives."""
    updated_at: float = 0.0
    shard: int = 0
    epoch: int = 0
    """Incarnation of that shard's scheduler that wrote it; what comes after a newer one in a partition is ignored."""
