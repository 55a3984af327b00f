"""The broker and Redis die, and come back with or without what they held."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import redis.asyncio

from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.scheduler.settings import redis_key
from tests.chaos.suite.plays.common import LONG, SCHEDULER, WORKER, more
from tests.chaos.suite.run import BROKER
from tests.chaos.suite.site import WAIT_S, Site

SERVER_KILLED = 128 + signal.SIGKILL
"""A server's end as its keeper says it."""
RECOVERED = re.compile(r"recovered from (.+?): seq (\d+) as epoch (\d+) .* (\d+) journal entries folded")


async def broker_killed(site: Site, seed: int) -> dict[str, float]:
    """The broker dies by SIGKILL in the middle of work and comes back on the same data and port."""
    rng = random.Random(seed)
    if site.broker is None:
        raise AssertionError("this scenario needs a broker of its own")
    site.keep(SCHEDULER, "scheduler")
    for name in ("worker-0", "worker-1"):
        site.keep(WORKER, name)
    away, held = 0.0, 0
    kills = 2 if LONG else 1
    for _ in range(kills):
        await site.submit(*site.tasks(more(60)))
        await site.busy(rng.randint(5, 25))
        began = time.monotonic()
        held += site.seen.holding()
        port = int(site.broker.bootstrap.rpartition(":")[2])
        site.broker.process.signal(signal.SIGKILL)
        await _over("the broker", site.broker)
        site.broker = await asyncio.to_thread(KafkaServer.start, site.folder.parent, port=port, config=BROKER)
        away += time.monotonic() - began
        ended = site.seen.ended()
        await site.until("work goes on", partial(_goes_on, site, ended))
    return {"kills": float(kills), "away_s": away, "held_at_kill": float(held)}


async def redis_lost(site: Site, seed: int) -> dict[str, float]:
    """Redis is flushed, killed with its data kept, and killed with its data gone; the log is the truth."""
    rng = random.Random(seed)
    if site.redis_server is None:
        raise AssertionError("this scenario needs a Redis of its own")
    site.scheduler()
    site.worker("worker-0")
    steps = ["flush", "kill", "empty", "flush while down"]
    rng.shuffle(steps)
    tally = Counter[str]()
    for step in steps:
        await site.submit(*site.tasks(more(25)))
        await site.progress(6)
        await _projected(site)
        pid = site.children["scheduler"].pid
        # Its first write is a whole one, so that what is counted after that comes of what is done here.
        await site.until("a whole write", partial(_written, site, pid, 0.0))
        whole = _whole(site, pid)
        if step == "flush":
            tally["fields_flushed"] += await _flush(site)
        elif step == "flush while down":
            await site.kill("scheduler")
            tally["fields_flushed"] += await _flush(site)
            # Nobody has written since: so it stands on the log alone.
            pid, whole = site.scheduler().pid, 0.0
            tally["rebuilt_entries"] += await _rebuilt(site)
        else:
            await _away(site, keep=step == "kill")
            tally["outages_noticed"] += 1
            tally["came_back_empty"] += step == "empty"
        # What was lost is there again, all of it, while the scheduler still runs.
        await site.until(f"after {step}: the whole state written anew", partial(_written, site, pid, whole))
        tally["written_whole"] += 1
    await _projected(site)
    return {"losses_of_redis": float(len(steps))} | {name: float(count) for name, count in tally.items()}


def _goes_on(site: Site, ended: int) -> bool:
    return site.seen.ended() > ended or site.all_ended()


def _written(site: Site, pid: int, before: float) -> bool:
    return _whole(site, pid) > before


def _whole(site: Site, pid: int) -> float:
    """Times that the scheduler has written its whole state."""
    return site.seen.stat("scheduler", "redis_full_writes", pid)


async def _rebuilt(site: Site) -> int:
    """Journal entries that the scheduler which was just started has folded; from nothing but the log."""
    child = site.children["scheduler"]
    await site.until("the scheduler recovered", lambda: RECOVERED.search(child.said()) is not None)
    found = RECOVERED.findall(child.said())[0]
    came_from, seq, _, folded = found
    if came_from != "the log" or int(folded) < int(seq) - 1:
        raise AssertionError(f"of {seq} entries {folded} were folded, from {came_from}, not all from the log")
    return int(folded)


async def _away(site: Site, *, keep: bool) -> None:
    """Redis dies; it comes back, with its data or without, when the scheduler has noticed."""
    if site.redis_server is None:
        raise AssertionError("this scenario needs a Redis of its own")
    pid = site.children["scheduler"].pid
    errors = site.seen.stat("scheduler", "redis_errors", pid)
    port = int(site.redis.rpartition(":")[2].partition("/")[0])
    folder = site.folder.parent
    site.redis_server.process.signal(signal.SIGKILL)
    await _over("Redis", site.redis_server)
    await site.until(
        "the scheduler noticed that Redis is away",
        lambda: site.seen.stat("scheduler", "redis_errors", pid) > errors,
    )
    if keep:
        if not _kept(folder):
            raise AssertionError("Redis was to keep its data, its append-only file is empty")
    else:
        (folder / "redis").rename(folder / f"redis-before-{time.monotonic_ns()}")
    site.redis_server = await asyncio.to_thread(RedisServer.start, folder, port=port)


def _kept(folder: Path) -> int:
    """Bytes of the append-only file."""
    return sum(path.stat().st_size for path in (folder / "redis" / "appendonlydir").glob("*.incr.aof"))


async def _flush(site: Site) -> int:
    """Flush Redis; fields of the projection that it held. Found empty afterwards in the same step."""
    client: Any = redis.asyncio.Redis.from_url(site.redis)
    try:
        async with client.pipeline(transaction=True) as steps:
            steps.hlen(redis_key(site.prefix))
            steps.flushall()
            steps.dbsize()
            held, _, left = await steps.execute()
    finally:
        await client.aclose()
    if not held or left:
        raise AssertionError(f"Redis held {held} fields before it was flushed and {left} keys after")
    return int(held)


async def _projected(site: Site) -> None:
    """Until Redis holds the projection."""
    client: Any = redis.asyncio.Redis.from_url(site.redis)
    try:
        async with asyncio.timeout(WAIT_S):
            while not await client.hlen(redis_key(site.prefix)):  # noqa: ASYNC110 (Redis tells nobody)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"Redis holds no projection after {WAIT_S:g} s; {site.stand()}") from None
    finally:
        await client.aclose()


async def _over(what: str, server: KafkaServer | RedisServer) -> None:
    status = await asyncio.to_thread(server.process.wait, 30.0)
    if status != SERVER_KILLED:
        raise AssertionError(f"{what} ended with status {status}, it was to be killed")
