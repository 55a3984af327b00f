"""What verifiers emit. Invariant: exactly one terminal verdict a trajectory, tied to the sample's bytes by a digest."""

from __future__ import annotations

from typing import Annotated, Literal

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
    fault: Literal["", "killed"] = ""
    """With an `infra` verdict: `killed` when no worker survived judging the record."""
    queued_s: float = 0.0
    duration_s: float = 0.0
    batch: str = ""
    """The task's batch label."""
    difficulty: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.5


class StageVerified(Event, frozen=True, kw_only=True):
    """One committed stage of a long-horizon task, said as soon as it is; the trajectory's verdict follows in its own event.

    The event's id is made from trajectory and stage: said again (after a crash, or by another worker) it changes nothing.
    """

    trajectory_id: str
    task_id: str
    attempt: int
    stage: Annotated[int, Meta(ge=0)]
    result: StageResult
    domain: str = ""
    group_id: str = ""
    index: int = 0
    lease_id: str = ""
    stages: Annotated[int, Meta(ge=0)] = 0
    """Stages of the task, in all."""
    snapshot: str = ""
    """Address of the state from which the next stage starts, kept until the verdict is out; empty when it is the first's."""
    worker: str = ""
    """The verifier that ran the stage, which need not be the one that says so."""
    runs: Annotated[int, Meta(ge=0)] = 0
    """Jail runs that it took; 0 for a stage that was skipped, or whose verdict was known before."""
    duration_s: Annotated[float, Meta(ge=0.0)] = 0.0
    note: str = ""
    """Why it was run although it had been committed before, if it was."""
