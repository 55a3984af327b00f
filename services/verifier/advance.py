"""One stage of a long answer, from the line to the record. Invariant: whatever a worker says is either committed or dropped."""

from __future__ import annotations

import logging
from dataclasses import replace

import msgspec

from schemas.verdicts import clip, infra
from services.verifier import attempts
from services.verifier.attempts import Ended
from services.verifier.company import Company
from services.verifier.frames import encode
from services.verifier.hand import Hand
from services.verifier.jobs import Job
from services.verifier.track import BACKS, Track

log = logging.getLogger(__name__)


async def stage(
    hand: Hand, job: Job, track: Track, stats: dict[str, float], company: Company
) -> Ended | None:
    """Judge the next stage of `job`; None: it is committed, and more are left.

    A snapshot that cannot be used takes the answer back to the stage that made it, one by one to the first good one; to the
    same stage BACKS times, for what is lost again and again is not kept by one run more.

    Raises BlobError: the store fails; JailUnavailable: no slot can be made.
    """
    while True:
        # Before the run, so that a log tells what was begun even where nobody lives to say how it ended.
        log.info("stage %d of %s begins", track.done, track.owner)
        request = msgspec.structs.replace(job.request, resume=track.resume)
        said = await attempts.step(hand, encode(request), job.deadline_s, stats, company)
        if isinstance(said, Ended):
            return replace(said, settled=said.settled and track.settled)
        if said.damaged:
            if not track.may_go_back(said.back):
                lost = f"the state after a stage was lost {BACKS + 1} times, the last time: {said.damaged}"
                return Ended(infra(clip(lost)), settled=False, fault="the state after a stage was lost")
            log.warning("%s goes back to stage %d: %s", track.owner, said.back, said.damaged)
            stats["stages_again"] += track.done - said.back
            await track.back(said.back, said.damaged)
            continue
        ours = await track.commit(said.committed)
        stats["stages_run"] += len(said.committed) if ours else 0
        if said.verdict is None or not ours:
            return None
        return Ended(said.verdict, settled=track.settled)
