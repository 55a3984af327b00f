"""Between records and the core. Invariant: what a record means is decided here, and nothing here waits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from schemas import topics
from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import event_id, group_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.states import TaskState
from schemas.tasks import PolicyRef
from schemas.trajectories import TrajectoryCompleted
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.trainer.assemble import Assembler
from services.trainer.place import Place

PARTS = (topics.TRAJECTORIES.name, topics.REWARDS.name)
"""What groups are made of."""
SOURCES = (*PARTS, topics.TASK_STATES.name)


def feed(assembler: Assembler, records: Iterable[Record], now: float) -> int:
    """Hand records to the assembler; returns how many were of training tasks. Other events there are not for the trainer."""
    used = 0
    for record in records:
        trace = record.envelope.traceparent
        place = Place(record.timestamp_ms, record.topic, record.partition, record.offset)
        match record.event:
            case TrajectoryCompleted() as sample:
                assembler.add_sample(sample, place, now, trace)
                used += sample.task.purpose == "train"
            case TrajectoryVerified() as verdict:
                assembler.add_verdict(verdict, place, now, trace)
                used += verdict.purpose == "train"
            case StageVerified() as stage:
                assembler.add_stage(stage.group_id or group_id(stage.task_id, stage.attempt), now)
            case TaskState() as state:
                assembler.add_state(state, place)
            case _:
                continue
    return used


def published(
    run: str, policy: PolicyRef, *, final: bool, metrics: Mapping[str, float], groups: Sequence[str] = ()
) -> Outgoing:
    """The event of a version; written again after a restart it has the same id, so that readers know it."""
    event = CheckpointPublished(
        run=run,
        policy=policy,
        step=policy.version,
        final=final,
        groups=tuple(groups),
        metrics=dict(metrics),
    )
    return Outgoing(
        topic=topics.CHECKPOINTS.name,
        event=event,
        key=run,
        id=event_id("CheckpointPublished", run, policy.version, policy.digest, int(final)),
    )


def heartbeat(
    worker: str,
    *,
    version: int,
    offsets: Mapping[str, int],
    stats: Mapping[str, float],
    draining: bool,
    started_at: float,
) -> Outgoing:
    """A sign of life."""
    event = WorkerHeartbeat(
        worker=worker,
        service="trainer",
        draining=draining,
        policy_version=version,
        offsets=dict(offsets),
        stats=dict(stats),
        pid=os.getpid(),
        started_at=started_at,
    )
    return Outgoing(topic=topics.HEARTBEATS.name, event=event, key=worker)
