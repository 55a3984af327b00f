"""What the fold wants done. Invariant: effects are data with deterministic identities; doing one twice changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.states import TaskState
from schemas.tasks import Task


class Assign(msgspec.Struct, frozen=True, kw_only=True):
    """Hand an attempt to its pool."""

    event: AttemptAssigned
    trace: str = ""


class Revoke(msgspec.Struct, frozen=True, kw_only=True):
    """Take a lease back."""

    event: AttemptRevoked
    pool: str
    group_id: str
    trace: str = ""


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Tell observers where a task is."""

    event: TaskState
    trace: str = ""
    keep: bool = False
    """Not to be replaced by a later state of the same batch."""


class Derive(msgspec.Struct, frozen=True, kw_only=True):
    """Submit a simpler sub-task of a task that kept failing."""

    parent: Task
    child_id: str
    difficulty: float
    level: int
    index: int
    seed: int
    priority: int = 0
    trace: str = ""


Effect = Assign | Revoke | Publish | Derive


def coalesce(effects: Iterable[Effect]) -> list[Effect]:
    """The effects with only the last state of each task, at the place of that last one."""
    kept: list[Effect] = []
    seen: set[str] = set()
    for effect in reversed(list(effects)):
        if isinstance(effect, Publish) and not effect.keep:
            if effect.event.task_id in seen:
                continue
            seen.add(effect.event.task_id)
        kept.append(effect)
    kept.reverse()
    return kept
