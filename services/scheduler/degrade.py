"""The ladder. Invariant: it only goes down, a bounded number of rungs, and only for tasks whose failure is no measurement."""

from __future__ import annotations

from schemas.cards import Ladder, Retry
from schemas.ids import derive
from schemas.tasks import Purpose


def rung(ladder: Ladder, purpose: Purpose, level: int) -> float | None:
    """Difficulty of the next rung below `level`, None at the bottom. Evaluation tasks have no ladder."""
    if purpose == "eval" or level >= len(ladder.steps):
        return None
    return ladder.steps[level]


def retries(retry: Retry, ladder: Ladder, purpose: Purpose, level: int, failures: int) -> bool:
    """Whether a task that failed `failures` times is tried again as it is.

    A task uses its retry budget first; with a rung left it is tried until `ladder.after` consecutive failures as well.
    An evaluation task is measured once: trying until it passes would bias the figure.
    """
    if purpose == "eval":
        return False
    if failures <= retry.failures:
        return True
    return rung(ladder, purpose, level) is not None and failures < ladder.after


def child_id(parent: str, level: int, index: int) -> str:
    """Id of sub-task `index` of `parent` on rung `level`."""
    return derive("sub-task", parent, level, index)


def child_seed(parent: str, level: int, index: int) -> int:
    """Seed of the draw that makes the sub-task, 48 bits."""
    return int(derive("sub-task-seed", parent, level, index)[:12], 16)
