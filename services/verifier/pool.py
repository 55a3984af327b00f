"""The pool of slots. Invariant: every answer put in gets exactly one verdict, and no answer can harm another's.

A worker that dies or overruns its deadline is killed with its whole process group and replaced, and its job is tried once
more; the second loss is an `infra` verdict. The queue is bounded and fair between domains. An answer already judged, or
being judged, is not executed again. There is no mode without the jail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict, clip, infra
from services.runtime.errors import Unavailable
from services.verifier import families
from services.verifier.cache import Cache, Share, key
from services.verifier.engine import ANSWER_LIMIT
from services.verifier.fair import FairQueue
from services.verifier.frames import Request, encode
from services.verifier.hand import COMMAND, Hand, WorkerLostError
from services.verifier.jail import JailUnavailable
from services.verifier.specs import SpecError

MARGIN_S = 20.0
TRIES = 2
PAUSE_S = 0.5
SLOT_NUMBERS = 10_000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and how it came about. Seconds: waiting for a slot, and in it; both 0 for a cached one."""

    verdict: Verdict
    cached: bool = False
    queued_s: float = 0.0
    duration_s: float = 0.0


@dataclass(slots=True)
class _Job:
    key: str
    domain: str
    frame: bytes
    deadline_s: float
    done: asyncio.Future[Judged]
    against: Verdict | None = None
    """Set when this is a second run, to be compared with that verdict."""
    since: float = field(default_factory=time.monotonic)


class Pool:
    """`slots` worker processes judging answers to tasks of the domains in `cards`."""

    def __init__(
        self,
        cards: Mapping[str, Card],
        root: Path,
        *,
        slots: int,
        cache: int = 0,
        reverify: float = 0.0,
        answer_limit: int = ANSWER_LIMIT,
        queue_limit: int = 4096,
        margin_s: float = MARGIN_S,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """`root`: folder of the slots. `margin_s`: seconds a job may take beyond the sum of its limits."""
        self._cards, self.answer_limit, self._margin_s = cards, answer_limit, margin_s
        self._cache, self._share = Cache(cache), Share(reverify)
        self._queue: FairQueue[_Job] = FairQueue()
        self._waiting, self._room = asyncio.Semaphore(0), asyncio.Semaphore(queue_limit)
        self._pending: dict[str, asyncio.Future[Judged]] = {}
        first = os.getpid() * 16 % SLOT_NUMBERS
        names = [f"temper-v{os.getpid()}-{(first + n) % SLOT_NUMBERS}" for n in range(slots)]
        self._hands = [Hand(name, root, command) for name in names]
        self._loops: list[asyncio.Task[None]] = []
        self._busy = 0
        self.failed: asyncio.Future[None] | None = None
        """Has an exception once slots can no longer be made: the service must end then, and not judge."""
        self.isolation = ""
        self.stats: dict[str, float] = dict.fromkeys(
            ("jobs", "cached", "scored", "invalid", "infra", "workers_lost", "reverified", "disagreements"),
            0.0,
        )
        self.stats |= dict.fromkeys(("jail_runs", "jail_cpu_s", "jail_wall_s", "busy_s"), 0.0)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return [hand.pid for hand in self._hands if hand.pid]

    @property
    def unfinished(self) -> int:
        """Jobs waiting or running."""
        return len(self._queue) + self._busy

    async def start(self) -> None:
        """Start all workers. Raises JailUnavailable with one line if a slot cannot be made; nothing is left running then."""
        # All of them to the end, so that none is still being started when the others are ended.
        started = await asyncio.gather(*(hand.start() for hand in self._hands), return_exceptions=True)
        failures = [each for each in started if isinstance(each, BaseException)]
        if failures:
            await self.close()
            first = min(failures, key=lambda each: isinstance(each, WorkerLostError))
            if isinstance(first, WorkerLostError):
                raise JailUnavailable(
                    f"a verifier worker did not start: {first}; its log is above"
                ) from first
            raise first
        self.isolation = next(str(each) for each in started)
        self.failed = asyncio.get_running_loop().create_future()
        self._loops = [asyncio.create_task(self._serve(hand)) for hand in self._hands]

    async def close(self) -> None:
        """End the workers; jobs without a verdict get an `infra` one."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        while self._queue:
            self._finish(self._queue.pop(), Judged(infra("the verifier was stopped")))
        await asyncio.gather(*(hand.close() for hand in self._hands))

    async def judge(self, task: Task, submission: bytes) -> Judged:
        """The verdict on an answer. Waits while the queue is full."""
        card = self._cards.get(task.domain)
        if card is None:
            return self._counted(Judged(infra(clip(f"no card describes the domain {task.domain}"))))
        name = key(task, card, submission, self.answer_limit)
        known = self._cache.get(name)
        if known is not None:
            if self._share.take():
                await self._again(name, task, card, submission, known)
            return self._counted(Judged(known, cached=True))
        pending = self._pending.get(name) if self._cache.size else None
        if pending is not None:
            shared = await asyncio.shield(pending)
            return self._counted(Judged(shared.verdict, cached=True))
        done: asyncio.Future[Judged] = asyncio.get_running_loop().create_future()
        self._pending[name] = done
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            self._pending.pop(name, None)
            done.cancel()
            raise
        self._push(name, task, card, submission, done)
        judged = await asyncio.shield(done)
        if self._share.take():
            await self._again(name, task, card, submission, judged.verdict)
        return self._counted(judged)

    def _counted(self, judged: Judged) -> Judged:
        self.stats["jobs"] += 1
        self.stats["cached"] += judged.cached
        self.stats[judged.verdict.outcome] += 1
        return judged

    def _push(
        self,
        name: str,
        task: Task,
        card: Card,
        submission: bytes,
        done: asyncio.Future[Judged],
        against: Verdict | None = None,
    ) -> None:
        frame = encode(Request(task=task, card=card, submission=submission, answer_limit=self.answer_limit))
        try:
            runs = families.runs(card.verifier.family, task.spec)
        except SpecError:
            runs = 1
        deadline_s = runs * card.limits.wall_s + self._margin_s
        job = _Job(name, task.domain, frame, deadline_s, done, against)
        self._queue.push(task.domain, job, job.since)
        self._waiting.release()

    async def _again(self, name: str, task: Task, card: Card, submission: bytes, verdict: Verdict) -> None:
        """Have a verdict computed a second time, unless the queue is full."""
        if verdict.outcome == "infra" or self._room.locked():
            return
        await self._room.acquire()
        self._push(name, task, card, submission, asyncio.get_running_loop().create_future(), verdict)

    async def _serve(self, hand: Hand) -> None:
        """One slot: take jobs in turn, for ever."""
        while True:
            await self._waiting.acquire()
            job = self._queue.pop()
            self._room.release()
            self._busy += 1
            started = time.monotonic()
            verdict: Verdict | None = infra("the verifier was stopped")
            try:
                verdict = await self._run(hand, job)
            except JailUnavailable as error:
                # No verdict: the record stays unfinished, and a verifier that can jail gets it.
                verdict = None
                if self.failed is not None and not self.failed.done():
                    self.failed.set_exception(Unavailable(f"no jail, no verdicts: {error}"))
                return
            finally:
                self._busy -= 1
                now = time.monotonic()
                self.stats["busy_s"] += now - started
                self._queue.charge(job.domain, now - started)
                if verdict is not None:
                    self._finish(job, Judged(verdict, queued_s=started - job.since, duration_s=now - started))

    async def _run(self, hand: Hand, job: _Job) -> Verdict:
        """The verdict of one job, `infra` if its worker was lost every time. Raises JailUnavailable: no slot can be made."""
        reason = ""
        for attempt in range(TRIES):
            try:
                if not hand.pid:
                    await hand.start()
                reply = await hand.ask(job.frame, job.deadline_s)
            except (WorkerLostError, JailUnavailable) as error:
                reason = str(error)
                self.stats["workers_lost"] += 1
                log.warning("worker %s lost (%s)", hand.name, reason)
                await hand.kill()
                if isinstance(error, JailUnavailable):
                    if attempt == TRIES - 1:
                        raise
                    await asyncio.sleep(PAUSE_S)
                continue
            self.stats["jail_runs"] += reply.jail_runs
            self.stats["jail_cpu_s"] += reply.jail_cpu_s
            self.stats["jail_wall_s"] += reply.jail_wall_s
            return reply.verdict
        return infra(clip(f"the verifier's worker was lost {TRIES} times: {reason}"))

    def _finish(self, job: _Job, judged: Judged) -> None:
        if job.against is not None:
            self._compare(job, job.against, judged.verdict)
        else:
            self._cache.put(job.key, judged.verdict)
            if self._pending.get(job.key) is job.done:
                del self._pending[job.key]
        if not job.done.done():
            job.done.set_result(judged)

    def _compare(self, job: _Job, first: Verdict, second: Verdict) -> None:
        if second.outcome == "infra":
            return
        self.stats["reverified"] += 1
        if first.digest != second.digest:
            self.stats["disagreements"] += 1
            self._cache.drop(job.key)
            log.warning("verdicts disagree in %s: %s against %s", job.domain, first.digest, second.digest)
