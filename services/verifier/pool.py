"""The pool of slots. Invariant: every answer put in gets exactly one verdict, and no answer can harm another's.

The queue is bounded and fair between domains. An answer already judged, or being judged, is not executed again. A domain
that only gives `infra` is not judged for a while (breaker.py). There is no mode without the jail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict, clip, infra
from services.runtime import telemetry
from services.runtime.errors import Unavailable
from services.verifier import attempts, engine, families
from services.verifier.attempts import Ended
from services.verifier.bounds import Bounds
from services.verifier.breaker import Breaker
from services.verifier.cache import Cache, Share, key
from services.verifier.frames import Request, encode
from services.verifier.hand import BOUNDS, COMMAND, START_S, Hand, WorkerLostError
from services.verifier.jail import JailUnavailable, hierarchy, ownership
from services.verifier.jobs import COUNTED, Job, Judged
from services.verifier.line import Line

__all__ = ["Judged", "Pool"]

MARGIN_S = 20.0
SLOT_NUMBERS = 10_000
log = logging.getLogger(__name__)


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
        answer_limit: int = engine.ANSWER_LIMIT,
        queue_limit: int = 4096,
        margin_s: float = MARGIN_S,
        command: Sequence[str] = COMMAND,
        image: str = "",
        breaker: Breaker | None = None,
        bounds: Bounds = BOUNDS,
        recycle: int = 0,
    ) -> None:
        """`root`: folder of the slots. `margin_s`: seconds a job may take beyond the sum of its limits.

        `image`: what else the verdicts of this machine depend on (image.py). `breaker`: none never opens. `bounds`: of
        the checks of one answer. `recycle`: answers after which a worker is replaced; 0: only when it has grown.
        """
        self._cards, self.answer_limit, self._margin_s = cards, answer_limit, margin_s
        self._cache, self._share, self._image = Cache(cache), Share(reverify), image
        self._breaker = breaker or Breaker(0, 1.0, 1.0)
        self._recycle, self._grown = recycle, bounds.memory_bytes // 2
        self._line: Line[Job] = Line(slots, queue_limit)
        self._pending: dict[str, asyncio.Future[Judged]] = {}
        first = os.getpid() * 16 % SLOT_NUMBERS
        names = [f"temper-v{os.getpid()}-{(first + n) % SLOT_NUMBERS}" for n in range(slots)]
        self._hands = [Hand(name, root, command, bounds) for name in names]
        self._loops: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] | None = None
        """Has an exception once slots can no longer be made: the service must end then, and not judge."""
        self.isolation = ""
        self.stats: dict[str, float] = dict.fromkeys((*COUNTED, *attempts.STATS), 0.0)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return [hand.pid for hand in self._hands if hand.pid]

    @property
    def slots(self) -> int:
        """Jobs at a time."""
        return len(self._hands)

    @property
    def unfinished(self) -> int:
        """Jobs waiting or running."""
        return self._line.unfinished

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
        for job in self._line.drain():
            self._finish(job, Judged(infra("the verifier was stopped"), settled=False))
        await asyncio.gather(*(hand.close() for hand in self._hands))
        if self.stats["workers_lost"]:
            await asyncio.to_thread(_sweep)

    async def judge(self, task: Task, submission: bytes) -> Judged:
        """The verdict on an answer. Waits while the queue is full."""
        card = self._cards.get(task.domain)
        if card is None:
            return self._counted(Judged(_no_card(task)))
        if len(submission) > self.answer_limit:
            return self.too_long(task, len(submission))
        name = key(task, card, submission, self.answer_limit, self._image)
        known = self._cache.get(name)
        if known is not None:
            if self._share.take():
                self._again(name, task, card, submission, Judged(known))
            return self._counted(Judged(known, cached=True))
        shut = self._breaker.shut(task.domain, time.monotonic())
        if shut:
            self.stats["refused"] += 1
            return self._counted(Judged(infra(clip(shut)), settled=False))
        pending = self._pending.get(name) if self._cache.size else None
        if pending is not None:
            shared = await asyncio.shield(pending)
            return self._counted(Judged(shared.verdict, cached=True))
        job = self._job(name, task, card, submission)
        self._pending[name] = job.done
        try:
            await self._line.room()
        except asyncio.CancelledError:
            self._pending.pop(name, None)
            job.done.cancel()
            raise
        job.since = time.monotonic()
        self._line.push(job.domain, job, job.bound_s)
        judged = await asyncio.shield(job.done)
        if self._share.take():
            self._again(name, task, card, submission, judged)
        return self._counted(judged)

    def too_long(self, task: Task, size: int) -> Judged:
        """The verdict on an answer of `size` bytes, beyond the limit: no worker need see it, nor anybody fetch it."""
        card = self._cards.get(task.domain)
        if card is None:
            return self._counted(Judged(_no_card(task)))
        return self._counted(Judged(engine.too_long(task, card, size, self.answer_limit)))

    def _counted(self, judged: Judged) -> Judged:
        self.stats["jobs"] += 1
        self.stats["cached"] += judged.cached
        self.stats[judged.verdict.outcome] += 1
        return judged

    def _job(
        self, name: str, task: Task, card: Card, submission: bytes, against: Verdict | None = None
    ) -> Job:
        frame = encode(Request(task=task, card=card, submission=submission, answer_limit=self.answer_limit))
        try:
            runs = families.runs(card.verifier.family, task.spec)
        except Exception:  # noqa: BLE001 (a malformed task; its verdict will say what is wrong with it)
            runs = 1
        bound_s = runs * card.limits.wall_s
        done: asyncio.Future[Judged] = asyncio.get_running_loop().create_future()
        return Job(name, task.domain, frame, bound_s, bound_s + self._margin_s, done, against)

    def _again(self, name: str, task: Task, card: Card, submission: bytes, first: Judged) -> None:
        """Have a settled verdict computed a second time, beside what waits; with too many of them, not at all."""
        if first.verdict.outcome == "infra":
            return
        job = self._job(name, task, card, submission, first.verdict)
        if not first.settled or not self._line.push_extra(job.domain, job, job.bound_s):
            self.stats["unsettled"] += 1

    async def _serve(self, hand: Hand) -> None:
        """One slot: take jobs in turn, for ever."""
        while True:
            job = await self._line.take()
            started = time.monotonic()
            ended: Ended | None = Ended(infra("the verifier was stopped"), settled=False)
            try:
                ended = await self._run(hand, job)
            except JailUnavailable as error:
                # No verdict: the record stays unfinished, and a verifier that can jail gets it.
                ended = None
                if self.failed is not None and not self.failed.done():
                    self.failed.set_exception(Unavailable(f"no jail, no verdicts: {error}"))
                return
            finally:
                now = time.monotonic()
                self.stats["busy_s"] += now - started
                self._line.end(job, job.domain, now - started, tell=ended is not None and not ended.refused)
                if ended is not None:
                    waited_s, took_s = started - job.since, now - started
                    self._finish(
                        job,
                        Judged(ended.verdict, queued_s=waited_s, duration_s=took_s, settled=ended.settled),
                    )
            await attempts.renew(hand, self._recycle, self._grown, self.stats)

    async def _run(self, hand: Hand, job: Job) -> Ended:
        """The verdict of one job, by the breaker or by a worker. Raises JailUnavailable: no slot can be made."""
        if job.against is None:
            probe_s = attempts.TRIES * job.deadline_s + attempts.STARTS * START_S
            refusal = self._breaker.refusal(job.domain, time.monotonic(), probe_s)
            if refusal:
                self.stats["refused"] += 1
                return Ended(infra(clip(refusal)), settled=False, refused=True)
        ended = await attempts.judge(hand, job.frame, job.deadline_s, self.stats)
        if job.against is None:
            self._noted(job.domain, ended.fault)
        return ended

    def _noted(self, domain: str, fault: str) -> None:
        change = self._breaker.note(domain, fault, time.monotonic())
        self.stats["breakers_open"] = float(self._breaker.open_count)
        if change == "opened":
            self.stats["breakers_opened"] += 1
            log.warning("%s", self._breaker.shut(domain, time.monotonic()))
        elif change:
            log.info("domain %s is judged again", domain)

    def _finish(self, job: Job, judged: Judged) -> None:
        if job.against is not None:
            self._compare(job, job.against, judged)
        else:
            if judged.settled:
                self._cache.put(job.key, judged.verdict)
            if self._pending.get(job.key) is job.done:
                del self._pending[job.key]
        if not job.done.done():
            job.done.set_result(judged)

    def _compare(self, job: Job, first: Verdict, judged: Judged) -> None:
        second = judged.verdict
        if second.outcome == "infra" or not judged.settled:
            self.stats["unsettled"] += 1
            return
        agree = first.digest == second.digest
        self.stats["reverified"] += 1
        with telemetry.span("reverify", attributes={"domain": job.domain, "agree": agree}):
            if agree:
                return
            self.stats["disagreements"] += 1
            self._cache.drop(job.key)
            log.warning("verdicts disagree in %s: %s against %s", job.domain, first.digest, second.digest)


def _no_card(task: Task) -> Verdict:
    return infra(clip(f"no card describes the domain {task.domain}"))


def _sweep() -> None:
    """Remove what killed workers left; while a pool runs, their successors do that."""
    try:
        ownership.sweep(hierarchy.discover())
    except (JailUnavailable, OSError) as error:
        log.warning("what killed workers left is still there: %s", error)
