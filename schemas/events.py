"""All events by name and version. Invariant: every (type, version) ever written has an entry that decodes it."""

from __future__ import annotations

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.base import Event
from schemas.checkpoints import CheckpointPromoted, CheckpointPublished, CheckpointRejected
from schemas.evaluations import EvaluationFinished, RegressionFound
from schemas.grants import CreditsGranted, KeysAnswered, KeysAsked, ShardReported
from schemas.heartbeats import WorkerHeartbeat
from schemas.journal import BatchFolded
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.snapshots import SnapshotStored
from schemas.states import TaskState
from schemas.tasks import (
    DomainDrained,
    DomainPaused,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
    TaskCancelled,
    TaskSubmitted,
)
from schemas.trajectories import TrajectoryAbandoned, TrajectoryCompleted, TurnCompleted

CURRENT: tuple[type[Event], ...] = (
    TaskSubmitted,
    TaskCancelled,
    DomainPaused,
    DomainResumed,
    DomainDrained,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
    AttemptAssigned,
    AttemptRevoked,
    TrajectoryCompleted,
    TurnCompleted,
    TrajectoryAbandoned,
    TrajectoryVerified,
    StageVerified,
    CheckpointPublished,
    CheckpointPromoted,
    CheckpointRejected,
    TaskState,
    EvaluationFinished,
    RegressionFound,
    WorkerHeartbeat,
    BatchFolded,
    ShardReported,
    CreditsGranted,
    KeysAsked,
    KeysAnswered,
    SnapshotStored,
)
"""Today's version of every event."""

REGISTRY: dict[tuple[str, int], type[Event]] = {
    (event.type_name(), event.VERSION): event for event in CURRENT
}
"""(type name, version) -> struct; superseded versions are added beside the current ones."""

BY_TOPIC: dict[str, tuple[type[Event], ...]] = {
    "tasks": (
        TaskSubmitted,
        TaskCancelled,
        DomainPaused,
        DomainResumed,
        DomainDrained,
        PoolDrained,
        PoolResumed,
        QuotaChanged,
    ),
    "assignments.standard": (AttemptAssigned, AttemptRevoked),
    "trajectories": (TrajectoryCompleted, TurnCompleted, TrajectoryAbandoned),
    "rewards": (TrajectoryVerified, StageVerified),
    "checkpoints": (CheckpointPublished, CheckpointPromoted, CheckpointRejected),
    "task-states": (TaskState,),
    "evaluations": (EvaluationFinished, RegressionFound),
    "heartbeats": (WorkerHeartbeat,),
    "journal": (BatchFolded,),
    "grants": (ShardReported, CreditsGranted, KeysAsked, KeysAnswered),
    "snapshots": (SnapshotStored,),
}
"""What each topic carries; the other pools' assignments are as `assignments.standard`."""
