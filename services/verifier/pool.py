"""The pool of slots. Invariant: every answer put in gets exactly one verdict, and no answer can harm another's.

The queue is bounded and fair between domains. An answer already judged, or being judged, is not executed again. A domain
that only gives `infra` is not judged for a while (breaker.py), and its answers wait (gate.py). There is no mode without the jail.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict, clip, infra
from services.runtime.errors import Unavailable
from services.verifier import attempts, engine, families, second
from services.verifier.attempts import Ended
from services.verifier.bounds import Bounds
from services.verifier.breaker import Breaker
from services.verifier.cache import Cache, Share, key
from services.verifier.company import Company
from services.verifier.crew import Crew, sweep
from services.verifier.frames import Request, encode
from services.verifier.gate import HOLD_SHARE, Gate
from services.verifier.hand import BOUNDS, COMMAND, START_S, Hand
from services.verifier.jail import JailUnavailable
from services.verifier.jobs import COUNTED, Job, Judged, bounded
from services.verifier.keep import Keep
from services.verifier.line import Line
from services.verifier.staged import Staged
from services.verifier.track import Follow, HandedBackError

__all__ = ["Judged", "Pool"]

MARGIN_S = 20.0
LEAVE_S = 5.0
"""Longest that the end waits for answers of domains that were not judged: they only have to hear of it."""
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
        keep: Keep | None = None,
        worker: str = "",
        hold: int = 0,
    ) -> None:
        """`root`: folder of the slots. `margin_s`: seconds a job may take beyond the sum of its limits.

        `image`: what else the verdicts of this machine depend on (image.py). `breaker`: none never opens. `bounds`: of
        the checks of one answer. `recycle`: answers after which a worker is replaced; 0: only when it has grown.
        `keep`: where long answers are kept stage by stage; without it they are judged in one go. `worker`: our name there.
        `hold`: answers that wait, at most, while their domain is not judged; the others are refused.
        """
        self._cards, self.answer_limit, self._margin_s = cards, answer_limit, margin_s
        self._cache, self._share, self._image = Cache(cache), Share(reverify), image
        self._gate, self._held = Gate(breaker or Breaker(0, 1.0, 1.0), hold), set[asyncio.Task[None]]()
        self._recycle, self._grown = recycle, bounds.memory_bytes // 2
        self._line: Line[Job] = Line(slots, queue_limit)
        self._pending: dict[str, asyncio.Future[Judged]] = {}
        self._crew, self._company = Crew(slots, root, command, bounds), Company()
        self._loops: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[None] | None = None
        """Has an exception once slots can no longer be made: the service must end then, and not judge."""
        self.isolation = ""
        self.stats: dict[str, float] = dict.fromkeys((*COUNTED, *attempts.STATS), 0.0)
        self.staged = Staged(cards, keep, worker, margin_s, self.stats)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return self._crew.pids

    @property
    def slots(self) -> int:
        """Jobs at a time."""
        return len(self._crew)

    @property
    def unfinished(self) -> int:
        """Jobs waiting or running."""
        return self._line.unfinished

    async def start(self) -> None:
        """Start all workers. Raises JailUnavailable with one line if a slot cannot be made; nothing is left running then."""
        try:
            self.isolation = await self._crew.start()
        except BaseException:
            await self.close()
            raise
        self.failed = asyncio.get_running_loop().create_future()
        self._loops = [asyncio.create_task(self._serve(hand)) for hand in self._crew]
        for loop in self._loops:
            loop.add_done_callback(self._watch)

    def _watch(self, task: asyncio.Task[None]) -> None:
        """A task of ours that ends by an exception ends the service: nobody else would notice."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self.failed is not None and not self.failed.done():
            self.failed.set_exception(Unavailable(f"verifier fault: {type(error).__name__}: {error}"))

    async def close(self) -> None:
        """End the workers; jobs without a verdict get an `infra` one."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        self._drop_waiting()
        self._gate.leave()
        if self._held:
            # They go on at once, into the line at most; `_watch` has told of what failed.
            _, stuck = await asyncio.wait(self._held, timeout=LEAVE_S)
            for task in stuck:
                task.cancel()
            self._drop_waiting()
        await self._crew.close()
        await self.staged.close()
        if self.stats["workers_lost"]:
            await asyncio.to_thread(sweep)

    def _drop_waiting(self) -> None:
        for job in self._line.drain():
            self._finish(job, Judged(infra("the verifier was stopped"), settled=False))

    def hand_back(self) -> None:
        """Begin no further stage of a long answer: `judge` raises HandedBackError for it."""
        self.staged.end()
        self._gate.leave()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the slots, while it runs."""
        return self._crew.numbers

    async def judge(self, task: Task, submission: bytes, follow: Follow | None = None) -> Judged:
        """The verdict on an answer. Waits while the queue is full.

        `follow`: whose it is, for an answer that is judged stage by stage.

        Raises:
            HandedBackError: the service is ending; stages are left to be judged, or the domain is not judged now.
        """
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
        pending = self._pending.get(name) if self._cache.size else None
        if pending is not None:
            shared = await asyncio.shield(pending)
            return self._counted(Judged(shared.verdict, cached=True, fault=shared.fault))
        job = self._job(name, task, card, submission)
        self._pending[name] = job.done
        job.hold_until = time.monotonic() + HOLD_SHARE * card.timeouts.verify_s
        try:
            if not await self._entered(job):
                return self._counted(await job.done)
            spent = await self.staged.follow(job, follow)
            if spent is not None:
                self._finish(job, spent)
                return self._counted(spent)
            await self._line.room()
        except HandedBackError as error:
            self._handed_back(job, error)
            job.done.exception()  # told to whoever shares it, and raised here
            raise
        except asyncio.CancelledError:
            self._pending.pop(name, None)
            job.done.cancel()
            raise
        except Exception as error:
            self._pending.pop(name, None)
            job.done.set_exception(error)
            job.done.exception()  # raised here
            raise
        job.since = time.monotonic()
        self._line.push(job.domain, job, job.bound_s, job.weight)
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
        request = Request(task=task, card=card, submission=submission, answer_limit=self.answer_limit)
        bound_s = bounded(card, task, families.runs)
        done: asyncio.Future[Judged] = asyncio.get_running_loop().create_future()
        return Job(name, task.domain, request, bound_s, bound_s + self._margin_s, done, against)

    def _again(self, name: str, task: Task, card: Card, submission: bytes, first: Judged) -> None:
        """Have a settled verdict computed a second time, beside what waits; with too many of them, not at all."""
        if first.verdict.outcome == "infra":
            return
        job = self._job(name, task, card, submission, first.verdict)
        self.staged.anew(job)
        if not first.settled or not self._line.push_extra(job.domain, job, job.bound_s, job.weight):
            self.stats["unsettled"] += 1

    async def _serve(self, hand: Hand) -> None:
        """One slot: take jobs in turn, for ever."""
        while True:
            job = await self._line.take()
            started = time.monotonic()
            ended: Ended | None = Ended(infra("the verifier was stopped"), settled=False)
            more = False
            try:
                ended = await self._run(hand, job)
                more = ended is None
            except HandedBackError as error:
                ended = None
                self._handed_back(job, error)
            except JailUnavailable as error:
                # No verdict: the record stays unfinished, and a verifier that can jail gets it.
                ended = None
                if self.failed is not None and not self.failed.done():
                    self.failed.set_exception(Unavailable(f"no jail, no verdicts: {error}"))
                return
            except Exception as error:
                # A fault of ours costs this answer its verdict, never the slot its loop.
                log.exception("the verifier failed at an answer of %s", job.domain)
                fault = clip(f"verifier fault: {type(error).__name__}: {error}")
                ended = Ended(infra(fault), settled=False, fault=fault)
            finally:
                took_s = time.monotonic() - started
                self.stats["busy_s"] += took_s
                tell = more or (ended is not None and not ended.refused)
                self._line.end(job, job.domain, took_s, tell=tell)
                if ended is not None and ended.refused:
                    self._hold(job)
                elif ended is not None:
                    self._ended(job, ended, started - job.since, took_s)
            if more:
                self._more(job, started - job.since, took_s)
            await attempts.renew(hand, self._recycle, self._grown, self.stats)

    def _ended(self, job: Job, ended: Ended, waited_s: float, took_s: float) -> None:
        track = job.track
        if track is not None:
            waited_s, took_s = track.waited_s or waited_s, track.took_s + took_s
        judged = Judged(
            ended.verdict,
            queued_s=waited_s,
            duration_s=took_s,
            settled=ended.settled,
            fault="killed" if ended.killed else "",
            track=track,
        )
        self._finish(job, judged)

    def _handed_back(self, job: Job, error: HandedBackError) -> None:
        if self._pending.get(job.key) is job.done:
            del self._pending[job.key]
        if job.against is not None:
            self.stats["unsettled"] += 1
            if job.track is not None:
                self.staged.clear(job.track, record=True)
        elif not job.done.done():
            job.done.set_exception(error)

    def _more(self, job: Job, waited_s: float, took_s: float) -> None:
        """Let a long answer wait for its next stage."""
        if job.track is not None:
            job.track.waited_s = job.track.waited_s or waited_s
            job.track.took_s += took_s
        self._line.push_again(job.domain, job, job.bound_s, job.weight)

    async def _run(self, hand: Hand, job: Job) -> Ended | None:
        """The verdict of one job, by the breaker or by a worker; None: one more stage is committed, and more are left.

        Raises JailUnavailable: no slot can be made; HandedBackError.
        """
        begun = job.track is not None and job.track.done > 0
        if job.against is None and not begun:
            refusal = "" if job.probe else self._gate.stopped(job.domain, _probe_s(job))
            if refusal:
                return Ended(infra(clip(refusal)), settled=False, refused=True)
        if job.track is None:
            frame, company = encode(job.request), self._company
            ended: Ended | None = await attempts.judge(hand, frame, job.deadline_s, self.stats, company)
        else:
            ended = await self.staged.step(hand, job, job.track, self._company)
        if job.against is None:
            self._noted(job.domain, ended.fault if ended is not None else "")
        return ended

    async def _entered(self, job: Job) -> bool:
        """Whether a job may be judged; waits while its domain is not, and finishes it when that lasts too long.

        Raises HandedBackError.
        """
        refusal, job.probe = await self._gate.enter(job.domain, job.hold_until, _probe_s(job))
        self.stats["refused"] = float(self._gate.refused)
        if refusal:
            self._finish(job, Judged(infra(clip(refusal)), settled=False, track=job.track))
        return not refusal

    def _hold(self, job: Job) -> None:
        """Let a job that was in the line when its domain's breaker opened wait, and then come in again."""

        async def wait() -> None:
            try:
                if await self._entered(job):
                    await self._line.room()
                    self._line.push(job.domain, job, job.bound_s, job.weight)
            except HandedBackError as error:
                self._handed_back(job, error)

        task = asyncio.create_task(wait())
        self._held.add(task)
        task.add_done_callback(self._held.discard)
        task.add_done_callback(self._watch)

    def _noted(self, domain: str, fault: str) -> None:
        self._gate.note(domain, fault)
        self.stats["breakers_open"] = float(self._gate.open_count)
        self.stats["breakers_opened"] = float(self._gate.opened)

    def _finish(self, job: Job, judged: Judged) -> None:
        if job.against is not None:
            second.compare(job, job.against, judged, self._cache, self.stats)
            if judged.track is not None:
                self.staged.clear(judged.track, record=True)
        else:
            if judged.settled:
                self._cache.put(job.key, judged.verdict)
            if self._pending.get(job.key) is job.done:
                del self._pending[job.key]
        if not job.done.done():
            job.done.set_result(judged)


def _probe_s(job: Job) -> float:
    """The longest that a probe may take to say something."""
    return attempts.TRIES * job.deadline_s + attempts.STARTS * START_S


def _no_card(task: Task) -> Verdict:
    return infra(clip(f"no card describes the domain {task.domain}"))
