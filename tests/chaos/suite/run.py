"""One scenario with one seed, from an empty log to its audit. Invariant: a run that finds nothing has looked at everything."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import redis.asyncio
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from services.runtime.stack import StackError
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.scheduler.settings import redis_key
from tests.chaos.suite import log as logs
from tests.chaos.suite.audit import audit
from tests.chaos.suite.evidence import evidence
from tests.chaos.suite.findings import unchecked, unproven
from tests.chaos.suite.layout import Layout
from tests.chaos.suite.site import Site, open_site
from tests.chaos.suite.slots import together

BROKER = {"log.cleaner.backoff.ms": "500", "group.min.session.timeout.ms": "1000"}


BROKEN = (
    *(AssertionError, StackError, RuntimeError, OSError, TimeoutError, ValueError, TypeError, LookupError),
    *(RedisError, KafkaError, subprocess.SubprocessError),
)
"""What may end a run; it is told in its outcome, and the next run begins."""
SETTLE_S = 180.0
"""Longest that what is under way may take to end."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one run."""

    scenario: str
    seed: int
    seconds: float = 0.0
    findings: list[str] = []
    error: str = ""
    figures: dict[str, float] = {}

    @property
    def good(self) -> bool:
        """Whether every invariant held and the scenario came to its end."""
        return not self.findings and not self.error


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to a site, and what the site is made of."""

    name: str
    about: str
    play: Callable[[Site, int], Awaitable[dict[str, float]]]
    layout: Callable[[int], Layout] = lambda _: Layout()
    own_servers: bool = False
    """It does something to the broker or to Redis, so it has its own."""
    seeds: int = 20
    """Runs of the long form."""
    short: bool = True
    """Whether the short form has it."""
    proves: tuple[str, ...] = ()
    """Figures that are not 0 if what it does had its effect; that one is, is a finding."""


async def settle(site: Site, within_s: float = SETTLE_S) -> None:
    """Let everything end, in order: tasks, workers, then the scheduler when it has read what they said."""
    known = -1
    while known != len(site.states):  # a task that ends may have asked for others
        known = len(site.states)
        await site.until("every task ended", site.all_ended, within_s)
        await site.all_read()
        await site.until("and what came of them", site.all_ended, within_s)
    await _end(site, "worker")
    await site.all_read()
    await _end(site, "scheduler")


async def _end(site: Site, kind: str) -> None:
    """Tell all that run to end."""
    for name in [name for name in site.children if name.startswith(kind)]:
        await site.let_go(name)  # from here on the same process has the name
        child = site.children[name]
        if child.process.poll() is not None:
            continue
        if kind == "worker":
            await site.heard(name)  # one that has not begun yet would end by the signal itself
        status = await site.kill(name, signal.SIGTERM)
        # A scheduler that stands by is heard of by nobody: it may not have come to its first line.
        unborn = kind == "scheduler" and status == -signal.SIGTERM and not child.said()
        if status != 0 and not unborn:
            raise AssertionError(
                f"{name} ended with status {status} when it was told to: {child.said()[-1500:]}"
            )


async def projection(site: Site, shard: int = 0) -> dict[str, bytes]:
    """All fields that Redis holds of a shard."""
    return await stored_fields(site.redis, site.prefix, shard)


async def stored_fields(url: str, prefix: str, shard: int = 0) -> dict[str, bytes]:
    """All fields that a Redis holds of a shard of an installation."""
    client: Any = redis.asyncio.Redis.from_url(url)
    try:
        return {
            name.decode(): value for name, value in (await client.hgetall(redis_key(prefix, shard))).items()
        }
    finally:
        await client.aclose()


async def examine(site: Site, outcome: Outcome) -> None:
    """The audit of a settled site, and the product's own replay beside it."""
    shards = site.config.scheduler.shards
    log = await logs.read(site.kafka, site.prefix, shards=shards)
    parts = []
    for shard in range(shards):
        policies = msgspec.structs.replace(site.policies, shard=shard, shards=shards)
        found = audit(log, policies, site.catalog, stored=await projection(site, shard))
        parts.append(found)
        outcome.findings += found.findings
        for name, value in (*found.figures.items(), *found.checked.items()):
            outcome.figures[name] = outcome.figures.get(name, 0.0) + value
    losses = {loss.lease: loss for part in parts for loss in part.lost}
    outcome.figures["lost_with_killed"] = float(sum(loss.pid in site.killed for loss in losses.values()))
    outcome.figures |= evidence(log)
    outcome.findings += unchecked(parts)
    outcome.findings += together(parts) if shards > 1 else []
    unheard = site.submitted - site.states.keys()
    if unheard:
        outcome.findings.append(
            f"invariant 1: {len(unheard)} submitted tasks have no state, e.g. {min(unheard)}"
        )
    outcome.figures["submitted"] = float(len(site.submitted))
    outcome.figures["unreadable"] = float(log.unreadable)
    outcome.figures["restarts"] = float(site.restarts)
    status, said = await site.ask("replay")
    if status != 0 or not said["equal"] or said["violations"]:
        outcome.findings.append(f"invariant 5: `replay` says {said}")


async def once(scenario: Scenario, seed: int, folder: Path, servers: tuple[str, str] | None) -> Outcome:
    """Run it; `servers` are the addresses of a broker and a Redis that may be shared. Never raises for what the run finds."""
    outcome = Outcome(scenario=scenario.name, seed=seed)
    began = time.monotonic()
    kafka: KafkaServer | None = None
    store: RedisServer | None = None
    place = folder / f"{scenario.name}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    try:
        if scenario.own_servers or servers is None:
            kafka = await asyncio.to_thread(KafkaServer.start, place, config=BROKER)
            store = await asyncio.to_thread(RedisServer.start, place)
            addresses = kafka.bootstrap, store.url
        else:
            addresses = servers
        prefix = f"{scenario.name}-{seed}."
        async with open_site(place / "site", *addresses, prefix, scenario.layout(seed)) as site:
            site.broker, site.redis_server = kafka, store
            try:
                outcome.figures |= await scenario.play(site, seed)
                await settle(site)
                await examine(site, outcome)
                outcome.findings += unproven(scenario.proves, outcome.figures)
            finally:
                kafka, store = site.broker, site.redis_server
    except BROKEN as error:
        outcome.error = " ".join(str(error).split())[:3000] or type(error).__name__
        if not isinstance(error, AssertionError):
            outcome.error += " | " + " ".join(traceback.format_exc(limit=-4).split())[:1500]
    finally:
        for server in (kafka, store):
            if server is not None:
                await asyncio.to_thread(server.stop)
    outcome.seconds = time.monotonic() - began
    return outcome
