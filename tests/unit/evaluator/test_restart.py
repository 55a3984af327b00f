"""After a restart all that was judged before counts, for whichever evaluation it was."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import EvaluationFinished
from schemas.rewards import TrajectoryVerified
from schemas.run import Evaluator, RunConfig
from schemas.tasks import PolicyRef, TaskSubmitted
from schemas.verdicts import Part, scored
from services.evaluator.handlers import Evaluations
from services.runtime.catalog import Catalog
from services.runtime.producer import Outgoing, Producer

CONFIG = RunConfig(name="r", evaluator=Evaluator(tasks=2, samples=1, greedy=False))
CATALOG = Catalog.load(include=("call.choose",))
CHECKPOINTS = [
    CheckpointPublished(
        run="r", policy=PolicyRef(version=version, uri="u", digest="d"), step=version, final=bool(version)
    )
    for version in (0, 7)
]


class Recorder:
    """What was emitted, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    async def emit(self, *records: Outgoing) -> None:
        self.events += [record.event for record in records]


def evaluations() -> tuple[Evaluations, Recorder]:
    recorder = Recorder()
    made = Evaluations(CONFIG, CATALOG, cast("Producer", recorder))
    for published in CHECKPOINTS:
        made.on_checkpoint(published)
    return made, recorder


def verdict(submitted: TaskSubmitted) -> TrajectoryVerified:
    task = submitted.task
    return TrajectoryVerified(
        trajectory_id=f"{task.id}/1/0",
        task_id=task.id,
        domain=task.domain,
        purpose="eval",
        attempt=1,
        group_id=f"{task.id}/1",
        group_size=1,
        index=0,
        lease_id="l",
        content="c",
        verdict=scored([Part(name="x", weight=1.0, score=1.0)]),
    )


def test_verdicts_read_before_anything_is_planned_complete_every_evaluation() -> None:
    before, asked = evaluations()
    asyncio.run(before.advance(0.0))
    tasks = [event for event in asked.events if isinstance(event, TaskSubmitted)]
    assert len(tasks) == 2 * len(CHECKPOINTS)
    again, told = evaluations()
    for submitted in tasks:
        again.on_verdict(verdict(submitted))
    asyncio.run(again.advance(1.0))
    finished = [event for event in told.events if isinstance(event, EvaluationFinished)]
    assert [(event.policy.version, event.complete) for event in finished] == [(0, True), (7, True)]
    asyncio.run(again.advance(2.0))
    assert sum(isinstance(event, EvaluationFinished) for event in told.events) == len(CHECKPOINTS)
