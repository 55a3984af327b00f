"""Events a group leads to. Invariant: each sample has one terminal event, whose id follows from task, attempt and index alone."""

from __future__ import annotations

from typing import Literal

from schemas.assignments import AttemptAssigned
from schemas.ids import event_id, trajectory_id
from schemas.topics import TRAJECTORIES
from schemas.trajectories import BlobRef, TrajectoryAbandoned, TrajectoryCompleted
from services.runtime.producer import Outgoing
from services.sampler.spans import Assembly

Reason = Literal["drain", "revoked", "expired", "engine", "too_long", "refused"]


def completed(
    assigned: AttemptAssigned,
    index: int,
    prompt_ids: list[int],
    sample: Assembly,
    *,
    text: str,
    text_ref: BlobRef | None,
    worker: str,
    assigned_at: float,
    traceparent: str,
) -> Outgoing:
    """A finished sample.

    Raises:
        ValueError: it has not finished.
    """
    if sample.finish is None:
        raise ValueError(f"sample {index} of group {assigned.group_id} has not finished")
    task = assigned.task
    identity = trajectory_id(task.id, assigned.attempt, index)
    event = TrajectoryCompleted(
        trajectory_id=identity,
        task=task,
        attempt=assigned.attempt,
        group_id=assigned.group_id,
        group_size=assigned.group_size,
        index=index,
        lease_id=assigned.lease_id,
        prompt_ids=prompt_ids,
        token_ids=sample.token_ids,
        logprobs=sample.logprobs,
        spans=sample.spans(),
        finish=sample.finish,
        text="" if text_ref is not None else text,
        text_ref=text_ref,
        worker=worker,
        queued_s=max(0.0, sample.first_at - assigned_at),
        duration_s=max(0.0, sample.last_at - sample.first_at),
    )
    return Outgoing(
        topic=TRAJECTORIES.name,
        event=event,
        key=assigned.group_id,
        id=event_id("TrajectoryCompleted", identity),
        traceparent=traceparent,
    )


def abandoned(
    assigned: AttemptAssigned, index: int, reason: Reason, detail: str = "", traceparent: str = ""
) -> Outgoing:
    """A sample that will not be finished under its lease."""
    task = assigned.task
    identity = trajectory_id(task.id, assigned.attempt, index)
    event = TrajectoryAbandoned(
        trajectory_id=identity,
        task_id=task.id,
        domain=task.domain,
        purpose=task.purpose,
        attempt=assigned.attempt,
        group_id=assigned.group_id,
        group_size=assigned.group_size,
        index=index,
        lease_id=assigned.lease_id,
        reason=reason,
        detail=detail,
    )
    return Outgoing(
        topic=TRAJECTORIES.name,
        event=event,
        key=assigned.group_id,
        id=event_id("TrajectoryAbandoned", identity),
        traceparent=traceparent,
    )
