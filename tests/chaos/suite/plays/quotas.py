"""A cohort lends and borrows, through changes of its quotas and deaths of its scheduler."""

from __future__ import annotations

import random

import redis.asyncio

from schemas.tasks import DomainPaused, DomainResumed, QuotaChanged
from services.scheduler.settings import redis_key
from tests.chaos.suite.plays.common import more
from tests.chaos.suite.processes import KILLED
from tests.chaos.suite.site import Site

OWN = 4
"""Slots that each domain owns."""
CARD = f'[quota]\nnominal = {OWN}\ncohort = "voices"'


async def quotas(site: Site, seed: int) -> dict[str, float]:
    """A domain borrows what its cohort does not use, gives it back when the owner comes, and quotas change meanwhile."""
    rng = random.Random(seed)
    site.scheduler()
    site.worker("worker-0")
    site.worker("worker-1")
    # One domain alone: it borrows. The scheduler dies meanwhile, and its successor knows of it from Redis or from the log.
    await site.submit(*site.of("echo", more(120)))
    kills = 0
    for forget in rng.sample([False, True], 2):
        await site.progress(4)
        await site.until("echo borrows", lambda: site.seen.holding("echo") > OWN)
        if (status := await site.kill("scheduler")) != KILLED:
            raise AssertionError(f"the scheduler ended with status {status}, it was to be killed")
        if forget and not await _forgotten(site):
            raise AssertionError("Redis held no projection that could be forgotten")
        site.scheduler()
        await site.heard("scheduler")
        kills += 1
        await site.submit(*site.of("echo", more(60)))
    await site.progress(4)
    await site.until("echo borrows again", lambda: site.seen.holding("echo") > OWN)
    most = site.seen.holding("echo")
    # The owner comes: what was borrowed is given back as leases end.
    await site.submit(*site.of("song", more(60)))
    back = await site.until("song has its own again", lambda: site.seen.holding("song") >= OWN)
    # What both use fully can only be raised, the others may be refused.
    for nominal in rng.sample([OWN + 2, *(rng.randint(1, OWN + 2) for _ in range(3))], 4):
        await site.say("tasks", QuotaChanged(domain=rng.choice(["echo", "song"]), nominal=nominal), "echo")
        await site.progress(6)
    name = rng.choice(["echo", "song"])
    other = "song" if name == "echo" else "echo"
    await site.say("tasks", DomainPaused(domain=name), name)
    await site.all_read()
    waits = site.of(name, 10)
    await site.submit(*waits)
    passes = site.of(other, 10)
    await site.submit(*passes)
    await site.until(
        f"{other} ends while {name} is paused", lambda: site.seen.have_ended(task.id for task in passes)
    )
    if begun := [task.id for task in waits if (known := site.states.get(task.id)) and known.attempt]:
        raise AssertionError(f"{len(begun)} tasks of {name} were begun while it was paused, e.g. {begun[0]}")
    await site.say("tasks", DomainResumed(domain=name), name)
    return {"most_held": float(most), "given_back_after_s": back, "kills": float(kills)}


async def _forgotten(site: Site) -> bool:
    """Delete the projection; whether there was one."""
    client = redis.asyncio.Redis.from_url(site.redis)
    try:
        return bool(await client.delete(redis_key(site.prefix)))
    finally:
        await client.aclose()
