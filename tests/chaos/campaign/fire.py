"""Judging a list of answers, with or without workers being killed. Invariant: what is returned are verdicts, one an answer.

An answer whose worker was killed twice gets `infra` from the pool; as the service would, it is asked for again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.cards import Card
from services.verifier.pool import Judged, Pool
from tests.chaos.campaign.answers import Answer

KILL_AFTER = (3, 12)
"""Answers from one kill to the next, drawn evenly."""
BOTH = 0.4
"""Share of kills that are followed by one of the worker that took the dead one's place."""
PLACE_S = 1.5
"""Longest that the second of two kills comes after the first: a worker takes a good part of it to stand."""
QUEUE = 64
MOST = 200
"""Times that answers are asked for again, all together: an answer that kills its worker each time would never end."""
LOST = "the verifier's worker"


@dataclass(frozen=True, slots=True)
class Range:
    """Where it all happens: `killed` and `numbers` gather process ids and slot numbers for the audit."""

    cards: Mapping[str, Card]
    root: Path
    command: tuple[str, ...]
    killed: list[int]
    numbers: set[int]

    @asynccontextmanager
    async def pool(self, **options: Any) -> Any:
        """A pool of two slots."""
        made = Pool(self.cards, self.root, slots=2, queue_limit=QUEUE, command=self.command, **options)
        await made.start()
        self.numbers.update(made.numbers)
        try:
            yield made
        finally:
            await made.close()


async def judge(pool: Pool, answer: Answer, again: list[str]) -> Judged:
    """The verdict on an answer. A loss of the worker is put on `again`, and it is judged anew."""
    judged = await pool.judge(answer.task, answer.raw)
    while len(again) < MOST and _lost(judged):
        again.append(judged.verdict.evidence)
        judged = await pool.judge(answer.task, answer.raw)
    return judged


def _lost(judged: Judged) -> bool:
    return judged.verdict.outcome == "infra" and judged.verdict.evidence.startswith(LOST)


async def kill_at_random(pool: Pool, rng: random.Random, killed: list[int]) -> None:
    """Kill -9 one worker after another, only the worker itself, until cancelled; paced by answers, not by a busy machine."""
    while True:
        goal = pool.stats["jobs"] + rng.randint(*KILL_AFTER)
        while pool.stats["jobs"] < goal:  # noqa: ASYNC110 (answers have no event that all can wait for)
            await asyncio.sleep(0.01)
        await asyncio.sleep(rng.uniform(0.0, 0.1))  # anywhere in what the worker does then
        place = rng.randrange(pool.slots)
        _kill(pool, place, killed)
        if rng.random() < BOTH:
            await asyncio.sleep(rng.uniform(0.0, PLACE_S))
            _kill(pool, place, killed)


def _kill(pool: Pool, place: int, killed: list[int]) -> None:
    pids = pool.pids
    if place < len(pids) and pids[place]:
        with suppress(ProcessLookupError):  # killed, not yet noticed
            os.kill(pids[place], signal.SIGKILL)
            killed.append(pids[place])


async def under_fire(
    where: Range, answers: Sequence[Answer], seed: int
) -> tuple[list[Judged], list[str], dict[str, float]]:
    """The verdicts on all while workers are killed, what was lost on the way, and the pool's counters."""
    again: list[str] = []
    async with where.pool() as pool:
        firing = asyncio.create_task(kill_at_random(pool, random.Random(seed), where.killed))
        try:
            judged = await asyncio.gather(*(judge(pool, each, again) for each in answers))
        finally:
            firing.cancel()
            await asyncio.gather(firing, return_exceptions=True)
        return judged, again, dict(pool.stats)


async def in_peace(
    where: Range, answers: Sequence[Answer], *, twice: bool
) -> tuple[list[Judged], list[Judged | None], dict[str, float]]:
    """The verdicts on all; with `twice` each is computed again.

    By the pool's own second look, where that is made; else (it met a limit of its jail, or had the network) by asking once more.
    """
    firsts: list[Judged] = []
    seconds: list[Judged | None] = []
    async with where.pool(reverify=1.0 if twice else 0.0) as pool:
        for start in range(0, len(answers), QUEUE // 2):
            part = answers[start : start + QUEUE // 2]
            judged = await asyncio.gather(*(pool.judge(each.task, each.raw) for each in part))
            asked = [twice and not each.settled for each in judged]
            more = await asyncio.gather(
                *(pool.judge(each.task, each.raw) for each, ask in zip(part, asked, strict=True) if ask)
            )
            while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
                await asyncio.sleep(0.02)
            rest = iter(more)
            firsts += judged
            seconds += [next(rest) if ask else None for ask in asked]
        return firsts, seconds, dict(pool.stats)
