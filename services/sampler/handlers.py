"""The edge of the sampler: records in, groups through it, events out. Invariant: a lease taken ends in one event a sample."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Literal

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.heartbeats import Released
from schemas.trajectories import BlobRef
from schemas.verdicts import clip
from services.runtime import faults, telemetry
from services.runtime.blobs import INLINE_LIMIT, Blobs
from services.runtime.consumer import Done
from services.runtime.memory import WORDS
from services.runtime.producer import Outgoing, Producer
from services.runtime.wire import Record
from services.sampler import emit
from services.sampler.engines.driver import Driver
from services.sampler.engines.port import EngineError, PromptTooLongError, Request
from services.sampler.intake import Intake, Reject, Start, Switch
from services.sampler.settings import SamplerSettings
from services.sampler.spans import Assembly
from services.sampler.tokenizer import Tokenizer
from services.sampler.versions import Versions

Ending = Literal["finished", "abandoned", "killed"]
log = logging.getLogger(__name__)


def blamed(detail: str) -> Ending:
    """How a group ended that was in the engine when it failed; whose doing that was is for the scheduler to find out."""
    return "killed" if WORDS.search(detail) else "abandoned"


class Desk:
    """Takes assignments, runs groups, hands results on. Its tasks live in the caller's task group, which sees their failures."""

    def __init__(
        self,
        settings: SamplerSettings,
        intake: Intake,
        driver: Driver,
        versions: Versions,
        tokenizer: Tokenizer,
        producer: Producer,
        blobs: Blobs,
        tasks: asyncio.TaskGroup,
        announce: Callable[[], Awaitable[None]],
    ) -> None:
        """`announce` writes a heartbeat now and returns when it is in the log."""
        self._announce = announce
        self._settings, self._intake, self._driver, self._versions = settings, intake, driver, versions
        self._tokenizer, self._producer, self._blobs, self._tasks = tokenizer, producer, blobs, tasks
        self._overflow: deque[tuple[Record, Done]] = deque()
        self._arrived: dict[str, tuple[float, str]] = {}
        self._ending: dict[str, emit.Reason] = {}
        self._groups: set[asyncio.Task[None]] = set()
        self._fallen = 0
        """Groups that were in the engine when it failed."""
        self.told: dict[str, int] = {}
        """The groups in the engine by the last heartbeat, with the company that each may have."""
        self.released: list[Released] = []
        self.samples = 0
        self.abandoned = 0
        self.wake = asyncio.Event()
        """Set when a lease was taken, has begun or has ended: the next heartbeat is due at once."""
        self.draining = False

    def handle(self, record: Record, done: Done) -> None:
        """One record of the assignments topic; it is done as soon as its lease is held, for an offset is not a lease."""
        event = record.event
        if isinstance(event, AttemptAssigned | AttemptRevoked) and not self._intake.fence.passes(
            record.partition, event.shard, event.epoch
        ):
            log.warning("lease %s is of a scheduler that was replaced and is ignored", event.lease_id)
            done()
            return
        match event:
            case AttemptAssigned() as assigned:
                self._offer(record, assigned, done)
                self.pump()
            case AttemptRevoked() as revoked:
                self._revoke(revoked)
                done()
            case other:
                log.warning("%s does not belong on topic %s and is skipped", other.type_name(), record.topic)
                done()

    def pump(self) -> None:
        """Do what the intake decides now."""
        if self.draining or self._driver.stopped.is_set():
            return
        for action in self._intake.decide(time.time()):
            match action:
                case Start(assigned):
                    self.wake.set()
                    self._spawn(self._group(assigned), assigned.lease_id)
                case Switch(policy):
                    self._tasks.create_task(self._switch_to(policy.version))
                case Reject(assigned, reason, detail):
                    self._drop(assigned, reason, detail)

    def lapse(self) -> None:
        """Take out of the engine what this worker has no right to any more: the work is given to another."""
        for lease_id in self._intake.lapsed(time.time()):
            log.warning("lease %s is over: its group is stopped", lease_id)
            self._stop(lease_id, "expired")

    def _stop(self, lease_id: str, reason: emit.Reason) -> None:
        self._ending.setdefault(lease_id, reason)
        self._driver.abort(lease_id)

    async def drain(self, deadline_s: float) -> None:
        """Hand back what has not begun, give what runs `deadline_s` seconds, then abandon it."""
        self.draining = True
        self._overflow.clear()
        for assigned in self._intake.waiting():
            self._drop(assigned, "drain", "the worker was told to stop")
        if self._groups:
            await asyncio.wait(set(self._groups), timeout=deadline_s)
        for task in list(self._groups):
            lease_id = task.get_name()
            self._ending.setdefault(lease_id, "drain")
            self._driver.abort(lease_id)
        if self._groups:
            await asyncio.wait(set(self._groups), timeout=deadline_s)

    def _offer(self, record: Record, assigned: AttemptAssigned, done: Done) -> None:
        now = time.time()
        match self._intake.offer(assigned, now, record.envelope.occurred_at):
            case "taken":
                faults.at("sampler:after-lease")
                self._arrived[assigned.lease_id] = (now, record.envelope.traceparent)
                self.wake.set()
                done()
            case "full":  # the record stays unfinished, and the consumer's window bounds how many there are
                self._overflow.append((record, done))
            case "expired":
                log.info("lease %s was over when it arrived", assigned.lease_id)
                done()
            case "duplicate":
                done()

    def _revoke(self, revoked: AttemptRevoked) -> None:
        waiting = {item.lease_id: item for item in self._intake.waiting()}
        if revoked.lease_id in waiting:
            self._drop(waiting[revoked.lease_id], "revoked", revoked.reason)
        elif revoked.lease_id in self._intake.held():
            self._stop(revoked.lease_id, "revoked")
        else:
            self._intake.forget(revoked.lease_id)

    def _drop(self, assigned: AttemptAssigned, reason: emit.Reason, detail: str) -> None:
        """Abandon a group that has not begun. The lease is given up at once, so that nothing else starts it."""
        self._intake.end(assigned.lease_id)
        self._spawn(self._abandon(assigned, range(assigned.group_size), reason, detail), "abandon")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._tasks.create_task(work, name=name)
        self._groups.add(task)
        task.add_done_callback(self._groups.discard)

    async def _abandon(
        self,
        assigned: AttemptAssigned,
        indices: range | list[int],
        reason: emit.Reason,
        detail: str,
        *,
        how: Ending = "abandoned",
        company: int = 0,
    ) -> None:
        _, traceparent = self._arrived.get(assigned.lease_id, (0.0, ""))
        if company:
            # Before the samples: their verdicts must not be in first, and hide what the attempt was lost by.
            self._release(assigned, how, detail, company)
            await self._announce()
        await self._producer.emit(
            *(emit.abandoned(assigned, index, reason, detail, traceparent) for index in indices)
        )
        self.abandoned += len(indices)
        if not company:
            self._release(assigned, how)

    def _release(self, assigned: AttemptAssigned, how: Ending, detail: str = "", company: int = 0) -> None:
        self._arrived.pop(assigned.lease_id, None)
        self._ending.pop(assigned.lease_id, None)
        self.released.append(
            Released(lease_id=assigned.lease_id, reason=how, detail=clip(detail), company=company)
        )
        self.wake.set()
        while self._overflow and not self._intake.full() and not self.draining:
            record, done = self._overflow.popleft()
            self.handle(record, done)
        self.pump()

    async def _switch_to(self, version: int) -> None:
        await self._versions.switch()
        log.info(
            "policy version %d %s", version, "loaded" if self._driver.version() == version else "refused"
        )
        self.wake.set()
        self.pump()

    async def _group(self, assigned: AttemptAssigned) -> None:
        left = set(range(assigned.group_size))
        reason: emit.Reason = "engine"
        how: Ending = "abandoned"
        detail, company = "", 0
        _, traceparent = self._arrived[assigned.lease_id]
        with telemetry.span(
            "sample group",
            parent=traceparent,
            kind="consumer",
            attributes={"temper.task": assigned.task.id, "temper.domain": assigned.task.domain},
        ) as span:
            try:
                if assigned.company or any((self._intake.inside() | self.told).values()):
                    await self._announce()
                if assigned.lease_id not in self._ending:
                    await self._sample(assigned, left, span.traceparent)
                reason = self._ending.get(assigned.lease_id, "engine")
                detail = {"engine": "ended by the engine", "expired": "its lease ended while it ran"}.get(
                    reason, ""
                )
            except PromptTooLongError as error:
                reason, detail = "too_long", str(error)
            except EngineError as error:
                detail = str(error)
                if self._driver.stopped.is_set():
                    company = self._fallen = self._fallen or self._intake.running()
                    how = blamed(detail)
            if left:
                span.fail(f"{reason}: {detail}")
        self._intake.end(assigned.lease_id)
        if left:
            await self._abandon(assigned, sorted(left), reason, detail, how=how, company=company)
        else:
            self._release(assigned, "finished")

    async def _sample(self, assigned: AttemptAssigned, left: set[int], traceparent: str) -> None:
        """Emit each sample as it finishes; `left` holds the indices that have not."""
        task = assigned.task
        prompt_ids = self._tokenizer.encode(task.prompt, task.system)
        request = Request(assigned.lease_id, prompt_ids, assigned.group_size, assigned.sampling)
        samples = [Assembly() for _ in range(assigned.group_size)]
        arrived, _ = self._arrived[assigned.lease_id]
        async with aclosing(self._driver.generate(request)) as stream:
            async for segments in stream:
                faults.at("sampler:mid-generation")
                now = time.time()
                outgoing: list[Outgoing] = []
                ended: list[int] = []
                for segment in segments:
                    sample = samples[segment.index]
                    sample.add(segment, now)
                    if sample.finish is None or sample.finish == "abort" or not sample.token_ids:
                        continue
                    text = self._tokenizer.decode(sample.token_ids)
                    outgoing.append(
                        emit.completed(
                            assigned,
                            segment.index,
                            prompt_ids,
                            sample,
                            text=text,
                            text_ref=await self._stored(text),
                            worker=self._settings.worker,
                            assigned_at=arrived,
                            traceparent=traceparent,
                        )
                    )
                    ended.append(segment.index)
                if outgoing:
                    await self._producer.emit(*outgoing)
                    left.difference_update(ended)
                    self.samples += len(ended)

    async def _stored(self, text: str) -> BlobRef | None:
        data = text.encode("utf-8", "surrogatepass")
        return await asyncio.to_thread(self._blobs.put, data) if len(data) > INLINE_LIMIT else None
