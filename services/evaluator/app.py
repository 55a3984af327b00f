"""Wiring of the evaluator: reads checkpoints and rewards, asks the base and the final version, writes evaluations."""

from __future__ import annotations

import time
from collections.abc import Mapping

from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import EvaluationFinished
from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import event_id
from schemas.rewards import TrajectoryVerified
from schemas.topics import CHECKPOINTS, EVALUATIONS, HEARTBEATS, REWARDS
from services.evaluator.handlers import Evaluations
from services.runtime.catalog import Catalog
from services.runtime.consumer import LogReader
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Outgoing, Producer
from services.runtime.settings import Process

HEARTBEAT_S = 1.0


async def run(process: Process, lifecycle: Lifecycle) -> None:
    """Evaluate until told to stop."""
    config = process.config
    catalog = Catalog.load(config.domains.paths, config.domains.include, config.domains.exclude)
    producer = Producer(process.kafka, process.prefix, process.worker)
    reader = LogReader(
        process.kafka, process.prefix, [CHECKPOINTS.name, REWARDS.name, EVALUATIONS.name], start="earliest"
    )
    await producer.start()
    await reader.start()
    evaluations = Evaluations(config, catalog, producer)
    lifecycle.progress.ready()
    started = time.time()
    beat = 0.0
    try:
        while not lifecycle.stop.is_set():
            for record in await reader.poll(0.2):
                match record.event:
                    case CheckpointPublished() as published if published.run == config.name:
                        evaluations.on_checkpoint(published)
                    case TrajectoryVerified(purpose="eval") as verified:
                        evaluations.on_verdict(verified)
                    case EvaluationFinished() as finished:
                        evaluations.on_finished(finished)
            if await reader.caught_up():
                await evaluations.advance(time.time())
            if time.time() - beat >= HEARTBEAT_S:
                beat = time.time()
                lifecycle.progress.beat("poll", deadline_s=30.0)
                await producer.emit(
                    _heartbeat(process.worker, evaluations.stats(), reader.positions(), started)
                )
    finally:
        await reader.stop()
        await producer.stop()


def _heartbeat(worker: str, stats: dict[str, float], offsets: Mapping[str, int], started: float) -> Outgoing:
    event = WorkerHeartbeat(
        worker=worker, service="evaluator", stats=stats, offsets=dict(offsets), started_at=started
    )
    return Outgoing(
        topic=HEARTBEATS.name, event=event, key=worker, id=event_id("heartbeat", worker, str(time.time()))
    )
