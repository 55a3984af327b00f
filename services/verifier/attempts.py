"""One answer, tried on a worker.

Invariant: it ends in a verdict after at most TRIES workers, or in JailUnavailable; never in a loop.

A worker that dies or overruns its deadline is killed with its whole process group and the answer tried once more on a fresh
one: the second loss is an `infra` verdict. It says so where each time the worker's process ended by itself (`killed`); one
that was killed is followed by a try without others beside it (company.py), so that it is this answer's doing. A worker that
ends before it stands has not seen the answer, and is started again without that being a try, a few times. A worker that died
of its own bounds (bounds.py) died of the answer: when that happens on every try, the answer is `invalid` and scores 0, for
the bounds are of processor time and memory, which a busy machine does not change. An `infra` verdict there would be asked
for again and again, each time at the full price.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from schemas.verdicts import Verdict, clip, infra, invalid
from services.verifier.company import Company
from services.verifier.frames import Reply
from services.verifier.hand import CheckOverrunError, Hand, WorkerDiedError, WorkerLostError
from services.verifier.jail import JailUnavailable

TRIES = 2
STARTS = 5
"""Starts of a worker for one answer at most."""
PAUSE_S = 0.5
STATS = (
    *("workers_lost", "workers_recycled", "check_overruns"),
    *("jail_runs", "jail_cpu_s", "jail_wall_s"),
)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """`settled`: the same answer gives the same another time. `fault`: what the breaker counts, empty if nothing."""

    verdict: Verdict
    settled: bool = True
    fault: str = ""
    refused: bool = False
    """By the breaker: no worker saw it."""
    killed: bool = False
    """No worker survived judging it."""


async def judge(
    hand: Hand, frame: bytes, deadline_s: float, stats: dict[str, float], company: Company
) -> Ended:
    """Have the request in `frame` judged to its end. Raises JailUnavailable: no slot can be made."""
    said = await step(hand, frame, deadline_s, stats, company)
    if isinstance(said, Ended):
        return said
    return Ended(infra("the worker gave no verdict"), settled=False, fault="the worker gave no verdict")


async def step(
    hand: Hand, frame: bytes, deadline_s: float, stats: dict[str, float], company: Company
) -> Ended | Reply:
    """Have what `frame` asks for judged: an end, or the reply that says how far a longer answer came.

    Raises JailUnavailable: no slot can be made.
    """
    asked = starts = overruns = died = 0
    reason, alone = "", False
    while asked < TRIES and starts < STARTS:
        asking = False
        try:
            if not hand.pid:
                starts += 1
                await hand.start()
            async with company.alone() if alone else company.among():
                asked, asking = asked + 1, True
                reply = await hand.ask(frame, deadline_s)
        except (WorkerLostError, JailUnavailable) as error:
            reason = str(error)
            if asking and isinstance(error, WorkerDiedError):
                died, alone = died + 1, alone or error.killed
            overruns += isinstance(error, CheckOverrunError)
            stats["workers_lost"] += 1
            log.warning("worker %s lost (%s)", hand.name, reason)
            await hand.kill()
            if isinstance(error, JailUnavailable):
                if starts >= TRIES:
                    raise
                await asyncio.sleep(PAUSE_S)
            continue
        _count(stats, reply)
        if reply.verdict is None or reply.committed:
            return reply
        fault = reply.verdict.evidence if reply.verdict.outcome == "infra" else ""
        return Ended(reply.verdict, settled=reply.settled, fault=fault)
    if overruns == TRIES:
        stats["check_overruns"] += 1
        log.warning("an answer is invalid because checking it %s", reason)
        return Ended(invalid(clip(f"checking the answer {reason}")), fault=f"checking an answer {reason}")
    what = (
        f"worker was lost {asked} times"
        if asked == TRIES
        else f"workers ended {starts} times before they stood"
    )
    verdict = infra(clip(f"the verifier's {what}: {reason}"))
    return Ended(verdict, settled=False, fault=verdict.evidence, killed=died >= TRIES)


async def renew(hand: Hand, recycle: int, memory_bytes: int, stats: dict[str, float]) -> None:
    """Replace a worker that has judged `recycle` answers (0: any number) or has grown to `memory_bytes`."""
    if not hand.pid or not ((recycle and hand.answers >= recycle) or hand.memory_bytes >= memory_bytes):
        return
    stats["workers_recycled"] += 1
    await hand.close()
    try:
        await hand.start()
    except (WorkerLostError, JailUnavailable) as error:
        log.warning("worker %s not replaced yet (%s)", hand.name, error)
        await hand.kill()  # the next answer starts it, and says so if it cannot


def _count(stats: dict[str, float], reply: Reply) -> None:
    stats["jail_runs"] += reply.jail_runs
    stats["jail_cpu_s"] += reply.jail_cpu_s
    stats["jail_wall_s"] += reply.jail_wall_s
