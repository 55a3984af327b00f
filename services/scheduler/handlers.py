"""Effects to records. Invariant: the identity of each record follows from the effect, so sending it again changes nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Protocol

import msgspec

from schemas.base import Event
from schemas.ids import event_id
from schemas.tasks import Task, TaskCancelled, TaskSubmitted
from schemas.verdicts import clip
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
                # As unique as a digest of these, and there are three of them for each task.
                name = f"{event.task_id}:{epoch}:{seq}:{number}"
                records.append(_out("task-states", event, event.task_id, name, effect.trace))
            case Derive(parent=parent):
                child = submission(effect, catalog)
                name = event_id(child.type_name(), effect.child_id)
                records.append(_out("tasks", child, parent.domain, name, effect.trace))
    return records


def submission(effect: Derive, catalog: Draws) -> TaskSubmitted | TaskCancelled:
    """The simpler sub-task, or the word that there is none (and a log line): the fold ends it as rejected, with that reason.

    With a difficulty it is a new draw from the training split; without, the parent with a hint or with fewer stages.
    """
    parent = effect.parent
    task, start = parent, ""
    if effect.difficulty is not None:
        try:
            drawn = catalog.sample(
                parent.domain, split="train", seed=effect.seed, count=1, difficulty=effect.difficulty
            )[0]
        except CatalogError as error:
            log.warning("task %s gets no simpler sub-task: %s", parent.id, error)
            return TaskCancelled(
                task_id=effect.child_id, parent=parent.id, reason=clip(f"cannot be made: {error}")
            )
        task, start = drawn.task, drawn.gold[: (len(drawn.gold) + 1) // 2]
    if effect.stages:
        task = first_stages(task, effect.stages)
    if effect.hint:
        # One pass, so that what is put in for one placeholder is never taken for the other.
        words = {"{prompt}": task.prompt, "{start}": start}
        prompt = re.sub(r"\{(?:prompt|start)\}", lambda found: words[found.group()], effect.hint)
        task = msgspec.structs.replace(task, prompt=prompt)
    task = msgspec.structs.replace(
        task,
        id=effect.child_id,
        purpose=parent.purpose,
        sampling=parent.sampling,
        group_size=parent.group_size,
        policy=parent.policy,
        batch=parent.batch,
        pool=parent.pool,
    )
    return TaskSubmitted(
        task=task,
        priority=effect.priority,
        parent=parent.id,
        level=effect.level,
        origin=effect.origin,
        climb=effect.climb,
    )


def first_stages(task: Task, count: int) -> Task:
    """The task with its first `count` stages only, and a line that says so. They begin where the whole begins."""
    stages = task.spec["stages"]
    if count >= len(stages):
        return task  # a new draw may have fewer than its parent had
    named = [stage.get("name") if isinstance(stage, dict) else None for stage in stages[:count]]
    names = ", ".join(str(number if name is None else name) for number, name in enumerate(named, 1))
    return msgspec.structs.replace(
        task,
        prompt=f"{task.prompt}\nOnly the first {count} of the {len(stages)} stages: {names}.",
        spec=task.spec | {"stages": stages[:count]},
    )


def _out(topic: str, event: Event, key: str, name: str, trace: str) -> Outgoing:
    return Outgoing(topic=topic, event=event, key=key, id=name, traceparent=trace)
