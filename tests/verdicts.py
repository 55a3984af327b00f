"""Verdict events as a verifier would write them for an assignment."""

from __future__ import annotations

from schemas.assignments import AttemptAssigned
from schemas.ids import trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.verdicts import Part, Verdict, scored


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


def verdict(name: str, attempt: int, lease: str, score: float) -> TrajectoryVerified:
    return TrajectoryVerified(
        trajectory_id=trajectory_id(name, attempt, 0),
        task_id=name,
        domain="a",
        purpose="train",
        attempt=attempt,
        group_id="g",
        group_size=1,
        index=0,
        lease_id=lease,
        content="c",
        verdict=scored([Part(name="p", weight=1.0, score=score)]),
    )
