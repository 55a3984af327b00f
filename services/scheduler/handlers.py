"""Effects to records. Invariant: the identity of each record follows from the effect, so sending it again changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

import msgspec

from schemas.base import Event
from schemas.ids import event_id
from schemas.tasks import Task, TaskSubmitted
from services.runtime.catalog import CatalogError, Drawn, Split
from services.runtime.producer import Outgoing
from services.scheduler.effects import Assign, Derive, Effect, Publish, Revoke

log = logging.getLogger(__name__)


class Draws(Protocol):
    """What is used of the catalog."""

    def sample(
        self, domain: str, *, split: Split, seed: int, count: int, difficulty: float | None = None
    ) -> list[Drawn]:
        """`count` tasks of a domain."""
        ...


def records_of(effects: Iterable[Effect], catalog: Draws, *, epoch: int, seq: int) -> list[Outgoing]:
    """Records for the effects of batch (`epoch`, `seq`), in order."""
    records: list[Outgoing] = []
    for number, effect in enumerate(effects):
        match effect:
            case Assign(event=event):
                name = event_id("AttemptAssigned", event.lease_id)
                records.append(_out(f"assignments.{event.pool}", event, event.group_id, name, effect.trace))
            case Revoke(event=event):
                name = event_id("AttemptRevoked", event.lease_id, event.reason)
                records.append(_out(f"assignments.{effect.pool}", event, effect.group_id, name, effect.trace))
            case Publish(event=event):
                name = event_id("TaskState", event.task_id, epoch, seq, number)
                records.append(_out("task-states", event, event.task_id, name, effect.trace))
            case Derive():
                child = submission(effect, catalog)
                if child is not None:
                    name = event_id("TaskSubmitted", child.task.id)
                    records.append(_out("tasks", child, child.task.domain, name, effect.trace))
    return records


def submission(effect: Derive, catalog: Draws) -> TaskSubmitted | None:
    """The simpler sub-task, drawn from the training split; None (and a log line) if the domain cannot yield one."""
    parent = effect.parent
    try:
        drawn = catalog.sample(
            parent.domain, split="train", seed=effect.seed, count=1, difficulty=effect.difficulty
        )
    except CatalogError as error:
        log.warning("task %s gets no simpler sub-task: %s", parent.id, error)
        return None
    task: Task = msgspec.structs.replace(
        drawn[0].task,
        id=effect.child_id,
        purpose=parent.purpose,
        sampling=parent.sampling,
        group_size=parent.group_size,
        batch=parent.batch,
    )
    return TaskSubmitted(task=task, priority=effect.priority, parent=parent.id, level=effect.level)


def _out(topic: str, event: Event, key: str, name: str, trace: str) -> Outgoing:
    return Outgoing(topic=topic, event=event, key=key, id=name, traceparent=trace)
