"""Trajectories in, verdicts out. Invariant: exactly one TrajectoryVerified a trajectory, under an id made from the trajectory.

A record that comes again while its verdict is being found waits for that one, and afterwards gets the same events, bit for
bit, as long as they are among the last KEPT. A replica that gets it without having seen it before judges it again: the
same id and the same verdict, with the worker and the seconds of its own. A trajectory that was abandoned, or whose record
has already cost several workers, ends in an `infra` verdict.

A long answer is judged stage by stage, each told as soon as it is committed (track.py): whoever gets its record next goes on
from there, and says what was committed again, under the same ids, since the last worker may have died before it did.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from collections.abc import Set as AbstractSet
from typing import Any

from schemas.base import Event
from schemas.ids import event_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.topics import REWARDS
from schemas.trajectories import TrajectoryAbandoned, TrajectoryCompleted, content_digest
from schemas.verdicts import StageResult, Verdict, clip, infra
from services.runtime import telemetry
from services.runtime.blobs import BlobError, Blobs
from services.runtime.consumer import Done
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.verifier.families import VERSION
from services.verifier.outbox import Outbox
from services.verifier.pool import Judged, Pool
from services.verifier.track import Follow, HandedBackError, Told, Track

log = logging.getLogger(__name__)
KEPT = 1024
"""Trajectories whose events are remembered."""
type Events = list[tuple[Event, str]]


def stage_verified(
    event: TrajectoryCompleted, number: int, stages: int, result: StageResult, worker: str, **more: Any
) -> tuple[Event, str]:
    """What is said of stage `number` of `stages`, with its deterministic id; `more` are further fields."""
    told = StageVerified(
        trajectory_id=event.trajectory_id,
        task_id=event.task.id,
        attempt=event.attempt,
        stage=number,
        result=result,
        domain=event.task.domain,
        group_id=event.group_id,
        index=event.index,
        lease_id=event.lease_id,
        stages=stages,
        worker=worker,
        **more,
    )
    return told, event_id("StageVerified", event.trajectory_id, number)


def verified(
    event: TrajectoryCompleted, judged: Judged, worker: str, told: AbstractSet[int] = frozenset()
) -> Events:
    """The events that say what became of a completed trajectory, each with its deterministic id; the verdict last.

    `told`: stages of which it has been said already.
    """
    stages = judged.verdict.stages
    events: Events = [
        stage_verified(event, number, len(stages), result, worker)
        for number, result in enumerate(stages)
        if number not in told
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
        fault=judged.fault,
    )
    events.append((verdict, event_id("TrajectoryVerified", event.trajectory_id)))
    return events


def abandoned(event: TrajectoryAbandoned, worker: str) -> Events:
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


class Results:
    """The events of the last trajectories, found once each. Bounded by `size`; what is being found counts too."""

    def __init__(self, size: int = KEPT) -> None:
        self._size = size
        self._events: OrderedDict[str, asyncio.Future[Events]] = OrderedDict()

    async def of(self, name: str, find: Callable[[], Coroutine[Any, Any, Events]]) -> Events:
        """The events under `name`, from `find` if they are not known; an exception of it is remembered by nobody."""
        future = self._events.get(name)
        if future is None:
            future = self._events[name] = asyncio.ensure_future(find())
        self._events.move_to_end(name)
        while len(self._events) > self._size:
            self._events.popitem(last=False)
        try:
            return await asyncio.shield(future)
        except BaseException:
            if self._events.get(name) is future:
                del self._events[name]
            raise


class Handler:
    """Takes records from the consumer, has them judged in the background, puts the events into the outbox."""

    def __init__(
        self,
        pool: Pool,
        outbox: Outbox,
        blobs: Callable[[], Blobs],
        worker: str,
        redeliveries: int,
        progressed: Callable[[Record], None] = lambda _: None,
    ) -> None:
        """`redeliveries`: a record that cost this many workers is not tried again.

        `progressed`: called when a stage of a record is committed: its deliveries so far were not in vain.
        """
        self._pool, self._outbox, self._blobs = pool, outbox, blobs
        self._worker, self._redeliveries, self._progressed = worker, redeliveries, progressed
        self._results = Results()
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
            "temper.domain": event.task.domain,
            "temper.task": event.task.id,
            "temper.attempt": event.attempt,
        }
        with telemetry.span(
            "verify", parent=record.envelope.traceparent, kind="consumer", attributes=attributes
        ) as span:
            owner = f"{event.trajectory_id} {content_digest(event.token_ids, event.text)}"
            tracks: list[Track] = []
            try:
                events = await self._results.of(owner, lambda: self._found(event, record, owner, tracks))
            except HandedBackError as error:
                log.info("%s is handed back: %s", owner, error)
                return  # unfinished: whoever gets the record next goes on
            verdict = events[-1][0]
            if isinstance(verdict, TrajectoryVerified):
                span.set(outcome=verdict.verdict.outcome, cached=verdict.cached)

        def out() -> None:
            done()
            for track in tracks:
                self._pool.staged.clear(track)

        self._put(events, event.group_id, span.traceparent, out)

    async def _found(
        self, event: TrajectoryCompleted, record: Record, owner: str, tracks: list[Track]
    ) -> Events:
        """The events of a trajectory; `tracks` gets that of an answer judged stage by stage."""
        told: set[int] = set()

        def tell(stage: Told) -> None:
            what = stage.what
            said = stage_verified(
                event,
                stage.number,
                stage.stages,
                what.result,
                what.worker,
                snapshot=stage.snapshot,
                runs=what.runs,
                duration_s=what.duration_s,
                note=what.note,
            )
            told.add(stage.number)
            self._put([said], event.group_id, record.envelope.traceparent, lambda: None)
            if stage.fresh:
                self._progressed(record)

        follow = None
        if self._pool.staged.applies(event.task):
            follow = Follow(owner, tell, record.redelivered, self._redeliveries)
        if follow is None and record.redelivered >= self._redeliveries:
            judged = Judged(
                infra(f"the record was delivered {record.redelivered} times and no worker survived it"),
                fault="killed",
            )
        else:
            judged = await self._judged(event, follow)
        if judged.track is not None:
            tracks.append(judged.track)
        return verified(event, judged, self._worker, told)

    async def _judged(self, event: TrajectoryCompleted, follow: Follow | None) -> Judged:
        if event.text_ref is None:
            # Lone surrogates stand for bytes that were no text; they come out as invalid UTF-8 again.
            return await self._pool.judge(event.task, event.text.encode("utf-8", "surrogatepass"), follow)
        if event.text_ref.size > self._pool.answer_limit:
            return self._pool.too_long(event.task, event.text_ref.size)
        try:
            submission = await asyncio.to_thread(self._blobs().get, event.text_ref)
        except BlobError as error:
            return Judged(_lost(error))
        return await self._pool.judge(event.task, submission, follow)

    def _put(self, events: Events, key: str, traceparent: str, done: Done) -> None:
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
