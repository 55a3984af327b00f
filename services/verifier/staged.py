"""Long answers of a pool: judged stage by stage, each stage kept. Invariant: nothing kept here outlives who needs it."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import clip, infra
from services.runtime.blobs import BlobError
from services.verifier import advance, families
from services.verifier.attempts import Ended
from services.verifier.company import Company
from services.verifier.hand import Hand
from services.verifier.jobs import Job, Judged, bounded
from services.verifier.keep import Keep
from services.verifier.progress import record_key
from services.verifier.track import Follow, HandedBackError, Told, Track

CLEAR_S = 30.0
"""Longest that the end waits for snapshots to be removed; the next sweep takes what is left."""
log = logging.getLogger(__name__)


class Staged:
    """How answers get their tracks, go on along them, and are cleared away."""

    def __init__(
        self,
        cards: Mapping[str, Card],
        keep: Keep | None,
        worker: str,
        margin_s: float,
        stats: dict[str, float],
    ) -> None:
        """`keep`: where stages are kept; without it every answer is judged in one go. `worker`: our name there."""
        self._cards, self._keep, self._worker = cards, keep, worker
        self._margin_s, self._stats = margin_s, stats
        self._ending = False
        self._clearing: set[asyncio.Task[None]] = set()

    def applies(self, task: Task) -> bool:
        """Whether answers to `task` are judged stage by stage."""
        card = self._cards.get(task.domain)
        return self._keep is not None and card is not None and families.stepwise(card.verifier.family)

    def end(self) -> None:
        """Begin no further stage."""
        self._ending = True

    async def close(self) -> None:
        """Wait for what is being removed."""
        if self._clearing:
            await asyncio.wait(self._clearing, timeout=CLEAR_S)

    async def follow(self, job: Job, follow: Follow | None) -> Judged | None:
        """Give a job that is to be judged so its track; the verdict, if no stage of it may be tried any more."""
        task = job.request.task
        if follow is None or self._keep is None or not self.applies(task):
            return None
        track = Track(self._keep, record_key(follow.owner, job.key), follow, task, self._worker)
        try:
            wasted = await track.open()
        except BlobError as error:
            return Judged(infra(clip(f"its progress cannot be read: {error}")), settled=False)
        if follow.limit and wasted >= follow.limit:
            said = f"the record was delivered {wasted} times without progress and no worker survived it"
            return Judged(infra(said), settled=False, fault="killed", track=track)
        self._stats["stages_resumed"] += track.resumed
        self._onto(job, track)
        return None

    def anew(self, job: Job) -> None:
        """Have a second run go stage by stage, too, with a record of its own that nobody is told of."""
        task = job.request.task
        if self._keep is None or not self.applies(task):
            return
        follow = Follow(f"again {id(job)} {os.getpid()} {time.time_ns()}", _nobody)
        self._onto(job, Track(self._keep, record_key(follow.owner, job.key), follow, task, self._worker))

    def _onto(self, job: Job, track: Track) -> None:
        job.track = track
        job.bound_s = bounded(job.request.card, job.request.task, families.step_runs)
        job.deadline_s = job.bound_s + self._margin_s

    async def step(self, hand: Hand, job: Job, track: Track, company: Company) -> Ended | None:
        """Judge the next stage; None: it is committed, which stands in the store before this returns, and more are left.

        Raises JailUnavailable: no slot can be made; HandedBackError.
        """
        if self._ending:
            raise HandedBackError(f"{track.done} stages are committed")
        try:
            await track.look()
            return await advance.stage(hand, job, track, self._stats, company)
        except BlobError as error:
            said = infra(clip(f"its progress cannot be kept: {error}"))
            return Ended(said, settled=False, fault=said.evidence)

    def clear(self, track: Track, *, record: bool = False) -> None:
        """The verdict is where it belongs: remove the snapshots, or the `record` too, in the background."""

        async def discard() -> None:
            try:
                await track.discard(record=record)
            except BlobError as error:
                log.warning("left to the next sweep: %s", error)

        task = asyncio.create_task(discard())
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)


def _nobody(_: Told) -> None:
    """Whom the stages of a second run are told to."""
