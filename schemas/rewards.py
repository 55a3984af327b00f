"""What verifiers emit. Invariant: exactly one terminal verdict a trajectory, tied to the sample's bytes by a digest."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.base import Event
from schemas.tasks import Purpose
from schemas.verdicts import StageResult, Verdict


class TrajectoryVerified(Event, frozen=True, kw_only=True):
    """The verdict on one trajectory."""

    trajectory_id: str
    task_id: str
    domain: str
    purpose: Purpose
    attempt: int
    group_id: str
    group_size: int
    index: int
    lease_id: str
    content: str
    """`content_digest` of the sample that was verified; empty when there was none (abandoned)."""
    verdict: Verdict
    verifier: str = ""
    """Version of the verifier families."""
    worker: str = ""
    cached: bool = False
    """The verdict was computed before, for the same task and the same submission."""
    queued_s: float = 0.0
    duration_s: float = 0.0
    batch: str = ""
    """The task's batch label."""
    difficulty: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5


class StageVerified(Event, frozen=True, kw_only=True):
    """One verified stage of a long-horizon task; the trajectory's verdict follows in its own event."""

    trajectory_id: str
    task_id: str
    attempt: int
    stage: Annotated[int, Meta(ge=0)]
    result: StageResult
