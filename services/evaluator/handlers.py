"""What the evaluator does on each event. Invariant: an evaluation finishes once; a restart asks the same tasks again."""

from __future__ import annotations

import msgspec
import structlog

from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import EvaluationFinished
from schemas.ids import event_id
from schemas.rewards import TrajectoryVerified
from schemas.run import RunConfig
from schemas.topics import EVALUATIONS, TASKS
from services.evaluator.collect import Collection
from services.evaluator.plan import Item, evaluation_id, plan
from services.evaluator.scores import summarise
from services.runtime import faults, telemetry
from services.runtime.catalog import Catalog
from services.runtime.producer import Outgoing, Producer

log = structlog.get_logger("evaluator")


class _Open(msgspec.Struct):
    """An evaluation in progress."""

    published: CheckpointPublished
    items: list[Item]
    collection: Collection
    asked_at: float = 0.0


class Evaluations:
    """Open and finished evaluations of one run."""

    def __init__(self, config: RunConfig, catalog: Catalog, producer: Producer) -> None:
        self._config = config
        self._catalog = catalog
        self._producer = producer
        self._wanted: dict[str, CheckpointPublished] = {}
        self._finished: set[str] = set()
        self._open: dict[str, _Open] = {}
        self._early: list[TrajectoryVerified] = []

    def on_checkpoint(self, published: CheckpointPublished) -> None:
        """The base and the final version are evaluated; the others are not."""
        if published.policy.version == 0 or published.final:
            self._wanted[evaluation_id(published.run, published.policy.version)] = published

    def on_verdict(self, verified: TrajectoryVerified) -> None:
        """Give a verdict to the evaluation that asked; keep it if that one has not been planned yet."""
        if self._open:
            for item in self._open.values():
                item.collection.add(verified)
        else:
            self._early.append(verified)

    def on_finished(self, finished: EvaluationFinished) -> None:
        """Note an evaluation that is in the log, by this process or an earlier one."""
        self._finished.add(finished.evaluation_id)
        self._open.pop(finished.evaluation_id, None)

    async def advance(self, now: float) -> None:
        """Ask what is wanted and not asked yet; finish what is complete or past its deadline."""
        due = [name for name in self._wanted if name not in self._finished and name not in self._open]
        for name in due:
            self._plan(name, self._wanted[name], now)
        if due:
            # To all of them at once: after a restart verdicts of several evaluations may have come before.
            for verified in self._early:
                for name in due:
                    self._open[name].collection.add(verified)
            self._early.clear()
        for name in due:
            await self._ask(name)
        for name, item in list(self._open.items()):
            late = now - item.asked_at > self._config.evaluator.deadline_s
            if item.collection.complete() or late:
                await self._finish(name, item, now)

    def stats(self) -> dict[str, float]:
        """Progress for the live view."""
        done = asked = 0
        for item in self._open.values():
            decided, total = item.collection.progress
            done, asked = done + decided, asked + total
        return {"open": len(self._open), "decided": done, "asked": asked, "finished": len(self._finished)}

    def _plan(self, name: str, published: CheckpointPublished, now: float) -> None:
        settings = self._config.evaluator
        drawn = [
            (card, item.task)
            for card in self._catalog.cards.values()
            for item in self._catalog.sample(
                card.name, split="heldout", seed=settings.seed, count=settings.tasks
            )
        ]
        items = plan(drawn, published.policy, settings, evaluation=name)
        self._open[name] = _Open(published=published, items=items, collection=Collection(items), asked_at=now)

    async def _ask(self, name: str) -> None:
        items, version = self._open[name].items, self._open[name].published.policy.version
        log.info("evaluation asked", evaluation=name, version=version, tasks=len(items))
        await self._producer.emit(
            *(
                Outgoing(
                    topic=TASKS.name,
                    event=item.submitted,
                    key=item.domain,
                    id=event_id("TaskSubmitted", item.submitted.task.id),
                    traceparent=telemetry.submitted(item.submitted.task.id, item.domain),
                )
                for item in items
            )
        )
        faults.at("evaluator:after-ask")

    async def _finish(self, name: str, item: _Open, now: float) -> None:
        summary = summarise(item.collection.answered(), seed=self._config.evaluator.seed)
        published = item.published
        finished = EvaluationFinished(
            run=published.run,
            evaluation_id=name,
            label="before" if published.policy.version == 0 else "after",
            policy=published.policy,
            seconds=now - item.asked_at,
            complete=item.collection.complete(),
            **msgspec.structs.asdict(summary),
        )
        faults.at("evaluator:before-event")
        await self._producer.emit(
            Outgoing(
                topic=EVALUATIONS.name,
                event=finished,
                key=published.run,
                id=event_id("EvaluationFinished", name),
            )
        )
        faults.at("evaluator:after-event")
        self.on_finished(finished)
        log.info(
            "evaluation finished",
            label=finished.label,
            mean=round(finished.mean, 3),
            seconds=round(finished.seconds, 1),
        )
