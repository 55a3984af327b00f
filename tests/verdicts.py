"""Verdict events as a verifier would write them for an assignment."""

from __future__ import annotations

from typing import Literal

from schemas.assignments import AttemptAssigned
from schemas.ids import lease_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.verdicts import Part, Verdict, infra, scored


def verified(event: AttemptAssigned, index: int, verdict: Verdict | float) -> TrajectoryVerified:
    """The event of one sample; a number is a score."""
    if not isinstance(verdict, Verdict):
        verdict = scored([Part(name="tests", weight=1.0, score=verdict)])
    return TrajectoryVerified(
        trajectory_id=trajectory_id(event.task.id, event.attempt, index),
        task_id=event.task.id,
        domain=event.task.domain,
        purpose=event.task.purpose,
        attempt=event.attempt,
        group_id=event.group_id,
        group_size=event.group_size,
        index=index,
        lease_id=event.lease_id,
        content="c",
        verdict=verdict,
    )


def judged(
    task: str,
    said: Verdict | float | None,
    attempt: int = 1,
    index: int = 0,
    *,
    lease: str | None = None,
    fault: Literal["", "killed"] = "",
) -> TrajectoryVerified:
    """One sample of a task of domain `a`, by the lease of that attempt unless told otherwise; None is an infrastructure fault."""
    if not isinstance(said, Verdict):
        said = infra("no jail") if said is None else scored([Part(name="tests", weight=1.0, score=said)])
    return TrajectoryVerified(
        trajectory_id=trajectory_id(task, attempt, index),
        task_id=task,
        domain="a",
        purpose="train",
        attempt=attempt,
        group_id="g",
        group_size=2,
        index=index,
        lease_id=lease_id(task, attempt) if lease is None else lease,
        content="c",
        verdict=said,
        fault=fault,
    )
