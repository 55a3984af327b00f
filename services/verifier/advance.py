"""One stage of a long answer, from the line to the record. Invariant: whatever a worker says is either committed or dropped."""

from __future__ import annotations

import logging
from dataclasses import replace

import msgspec

from services.verifier import attempts
from services.verifier.attempts import Ended
from services.verifier.frames import encode
from services.verifier.hand import Hand
from services.verifier.jobs import Job
from services.verifier.track import Track

log = logging.getLogger(__name__)


async def stage(hand: Hand, job: Job, track: Track, stats: dict[str, float]) -> Ended | None:
    """Judge the next stage of `job`; None: it is committed, and more are left.

    A snapshot that cannot be used takes the answer back to the stage that made it, one by one to the first good one.

    Raises BlobError: the store fails; JailUnavailable: no slot can be made.
    """
    while True:
        # Before the run, so that a log tells what was begun even where nobody lives to say how it ended.
        log.info("stage %d of %s begins", track.done, track.owner)
        request = msgspec.structs.replace(job.request, resume=track.resume)
        said = await attempts.step(hand, encode(request), job.deadline_s, stats)
        if isinstance(said, Ended):
            return replace(said, settled=said.settled and track.settled)
        if said.damaged:
            log.warning("%s goes back to stage %d: %s", track.owner, said.back, said.damaged)
            stats["stages_again"] += track.done - said.back
            await track.back(said.back, said.damaged)
            continue
        ours = await track.commit(said.committed)
        stats["stages_run"] += len(said.committed) if ours else 0
        if said.verdict is None or not ours:
            return None
        return Ended(said.verdict, settled=track.settled)
