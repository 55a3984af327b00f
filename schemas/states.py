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
    "succeeded",
    "failed",
    "degraded",
    "dead",
    "cancelled",
    "rejected",
]
TERMINAL: frozenset[State] = frozenset({"succeeded", "failed", "degraded", "dead", "cancelled", "rejected"})
"""`rejected`: never admitted (unknown domain, conflicting idempotency key); counts as submitted and ended."""


class TaskState(Event, frozen=True, kw_only=True):
    """Where one task is."""

    task_id: str
    domain: str
    purpose: Purpose
    state: State
    attempt: Annotated[int, Meta(ge=0)] = 0
    failures: int = 0
    losses: int = 0
    """Attempts lost to infrastructure."""
    score: float | None = None
    """Mean score of the deciding attempt's valid members."""
    reason: str = ""
    parent: str = ""
    children: tuple[str, ...] = ()
    batch: str = ""
    updated_at: float = 0.0
