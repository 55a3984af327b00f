"""Names of the benchmark's domains and tasks. Invariant: a task's number is in its id."""

from __future__ import annotations

OURS = "temper"
DOMAINS = 300
_STRIDE = 7
"""Consecutive tasks are of different domains; prime to their number."""


def domain(number: int) -> str:
    """Name of the domain `number`."""
    return f"bench.d{number:03d}"


def domain_of(task: int) -> str:
    """The domain that a task is of."""
    return domain(task * _STRIDE % DOMAINS)


def task_id(number: int) -> str:
    """Id of a task."""
    return f"bench-{number}"


def number_of(task: str) -> int:
    """Number of the task with this id. Raises ValueError for another id."""
    return int(task.removeprefix("bench-"))
