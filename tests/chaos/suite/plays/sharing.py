"""Several schedulers share the domains; owners die and are told to stop."""

from __future__ import annotations

import random
import signal
from functools import partial

from tests.chaos.suite.plays.common import LONG, SCHEDULER, more
from tests.chaos.suite.processes import KILLED
from tests.chaos.suite.site import Site


async def shards(site: Site, seed: int) -> dict[str, float]:
    """Two shards, three schedulers: owners die and are told to stop; the others take over, credits hold across them."""
    rng = random.Random(seed)
    names = ["scheduler-0", "scheduler-1", "scheduler-2"]
    count = site.config.scheduler.shards
    for name in names:
        site.keep(SCHEDULER, name)
    for name in ("worker-0", "worker-1"):
        site.worker(name)
    await site.submit(*site.tasks(more(80)))
    kills = 4 if LONG else 2
    moved = 0
    for turn in range(kills):
        await site.until(
            "every shard has an owner", lambda: all(site.seen.owner(shard) for shard in range(count))
        )
        await site.progress(8)
        # One that works: the third stands by, and nobody would miss it.
        name = site.seen.owner(rng.randrange(count))
        lost = [shard for shard in range(count) if site.seen.owner(shard) == name]
        number = signal.SIGKILL if turn % 2 == 0 else signal.SIGTERM
        status = await site.kill(name, number)
        if status != (KILLED if number == signal.SIGKILL else 0):
            raise AssertionError(f"{name} ended with status {status} by {number.name}")
        await site.submit(*site.tasks(more(20)))
        await site.until(
            f"others took over from {name}",
            partial(_left, site, name, lost),
        )
        moved += len(lost)
        await site.progress(8, "the others go on")
        site.keep(SCHEDULER, name)
    return {"kills": float(kills), "shards_moved": float(moved)}


def _left(site: Site, name: str, lost: list[int]) -> bool:
    """Whether a scheduler owns none of these shards any more."""
    return all(site.seen.owner(shard) != name for shard in lost)
