"""Trajectories in, verdicts out. Invariant: exactly one TrajectoryVerified a trajectory, under an id made from the trajectory.

A trajectory that was abandoned, or whose record has already cost several workers, ends in an `infra` verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from schemas.base import Event
from schemas.ids import event_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.topics import REWARDS
from schemas.trajectories import TrajectoryAbandoned, TrajectoryCompleted, content_digest
from schemas.verdicts import Verdict, clip, infra
from services.runtime import telemetry
from services.runtime.blobs import BlobError, Blobs
from services.runtime.consumer import Done
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.verifier.families import VERSION
from services.verifier.outbox import Outbox
from services.verifier.pool import Judged, Pool


def verified(event: TrajectoryCompleted, judged: Judged, worker: str) -> list[tuple[Event, str]]:
    """The events that say what became of a completed trajectory, each with its deterministic id; the verdict last."""
    events: list[tuple[Event, str]] = [
        (
            StageVerified(
                trajectory_id=event.trajectory_id,
                task_id=event.task.id,
                attempt=event.attempt,
                stage=number,
                result=result,
            ),
            event_id("StageVerified", event.trajectory_id, number),
        )
        for number, result in enumerate(judged.verdict.stages)
    ]
    content = content_digest(event.token_ids, event.text)
    verdict = TrajectoryVerified(
        trajectory_id=event.trajectory_id,
        task_id=event.task.id,
        domain=event.task.domain,
        purpose=event.task.purpose,
        attempt=event.attempt,
        group_id=event.group_id,
        group_size=event.group_size,
        index=event.index,
        lease_id=event.lease_id,
        content=content,
        verdict=judged.verdict,
        verifier=VERSION,
        worker=worker,
        cached=judged.cached,
        queued_s=judged.queued_s,
        duration_s=judged.duration_s,
        batch=event.task.batch,
        difficulty=event.task.difficulty,
    )
    events.append((verdict, event_id("TrajectoryVerified", event.trajectory_id)))
    return events


def abandoned(event: TrajectoryAbandoned, worker: str) -> list[tuple[Event, str]]:
    """The `infra` verdict on a trajectory that was never finished."""
    reason = f"abandoned: {event.reason}" + (f": {event.detail}" if event.detail else "")
    verdict = TrajectoryVerified(
        trajectory_id=event.trajectory_id,
        task_id=event.task_id,
        domain=event.domain,
        purpose=event.purpose,
        attempt=event.attempt,
        group_id=event.group_id,
        group_size=event.group_size,
        index=event.index,
        lease_id=event.lease_id,
        content="",
        verdict=infra(clip(reason)),
        verifier=VERSION,
        worker=worker,
    )
    return [(verdict, event_id("TrajectoryVerified", event.trajectory_id))]


class Handler:
    """Takes records from the consumer, has them judged in the background, puts the events into the outbox."""

    def __init__(
        self, pool: Pool, outbox: Outbox, blobs: Callable[[], Blobs], worker: str, redeliveries: int
    ) -> None:
        """`redeliveries`: a record that cost this many workers is not tried again."""
        self._pool, self._outbox, self._blobs = pool, outbox, blobs
        self._worker, self._redeliveries = worker, redeliveries
        self._running: set[asyncio.Task[None]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails with the first unexpected exception of a background task."""

    def handle(self, record: Record, done: Done) -> None:
        """Take one record; never waits."""
        match record.event:
            case TrajectoryAbandoned() as event:
                self._put(abandoned(event, self._worker), event.group_id, record.envelope.traceparent, done)
            case TrajectoryCompleted() as event:
                task = asyncio.create_task(self._judge(event, record, done))
                self._running.add(task)
                task.add_done_callback(self._ended)
            case _:
                done()  # turns of unfinished trajectories carry no verdict

    async def drained(self) -> None:
        """Until every record taken so far has its events in the outbox."""
        while self._running:
            await asyncio.wait(self._running)

    async def _judge(self, event: TrajectoryCompleted, record: Record, done: Done) -> None:
        attributes: dict[str, telemetry.Value] = {
            "domain": event.task.domain,
            "task": event.task.id,
            "attempt": event.attempt,
        }
        with telemetry.span(
            "verify", parent=record.envelope.traceparent, kind="consumer", attributes=attributes
        ) as span:
            if record.redelivered >= self._redeliveries:
                judged = Judged(
                    infra(f"the record was delivered {record.redelivered} times and no worker survived it")
                )
            else:
                judged = await self._judged(event)
            span.set(outcome=judged.verdict.outcome, cached=judged.cached)
        self._put(verified(event, judged, self._worker), event.group_id, span.traceparent, done)

    async def _judged(self, event: TrajectoryCompleted) -> Judged:
        if event.text_ref is None:
            # Lone surrogates stand for bytes that were no text; they come out as invalid UTF-8 again.
            return await self._pool.judge(event.task, event.text.encode("utf-8", "surrogatepass"))
        if event.text_ref.size > self._pool.answer_limit:
            # Its size alone decides, so it is not fetched.
            return await self._pool.judge(event.task, b"x" * (self._pool.answer_limit + 1))
        try:
            submission = await asyncio.to_thread(self._blobs().get, event.text_ref)
        except BlobError as error:
            return Judged(_lost(error))
        return await self._pool.judge(event.task, submission)

    def _put(self, events: list[tuple[Event, str]], key: str, traceparent: str, done: Done) -> None:
        self._outbox.put(
            [
                Outgoing(topic=REWARDS.name, event=e, key=key, id=name, traceparent=traceparent)
                for e, name in events
            ],
            done,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)


def _lost(error: BlobError) -> Verdict:
    return infra(clip(f"the answer cannot be fetched: {error}"))
