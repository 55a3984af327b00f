"""`kill -9` of schedulers and workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from schemas.heartbeats import WorkerHeartbeat
from services.runtime.faults import POINTS
from tests.chaos.suite.plays.common import WORKER, marked, more
from tests.chaos.suite.processes import KILLED
from tests.chaos.suite.site import WAIT_S, Site

# The one of removing old snapshots comes after a grace of minutes; tests/unit/scheduler/test_cellar.py kills there.
SCHEDULER_POINTS = tuple(
    point for point in POINTS if point.startswith("scheduler:") and point != "scheduler:before-tidy"
)

ROUNDS, MOST_KILLS = 5, 15
"""Kills of a worker that take leases from it, and kills that it may take."""


async def scheduler_killed(site: Site, seed: int) -> dict[str, float]:
    """The scheduler dies at each of its named points, the next one takes over."""
    rng = random.Random(seed)
    points = list(SCHEDULER_POINTS)
    rng.shuffle(points)
    site.worker("worker-0")
    site.worker("worker-1")
    for point in points:
        child = site.scheduler(TEMPER_FAULT=f"{point}:{rng.randint(2, 9)}")
        await site.submit(*site.tasks(more(20)))
        status = await child.ended(WAIT_S)
        if status != KILLED:
            raise AssertionError(f"{point}: the scheduler ended with status {status}: {child.said()[-2000:]}")
        mark = await marked(site, point.replace(":", "_"), WAIT_S)
        if mark.read_text().strip() != str(child.pid):
            raise AssertionError(f"{point}: {mark.name} was left by another process than was killed")
    child = site.scheduler()
    await site.heard("scheduler")
    epoch = site.seen.stat("scheduler", "epoch", child.pid)
    if epoch <= len(points):
        raise AssertionError(f"{len(points)} schedulers were killed, the next one is of epoch {epoch:g}")
    return {"kills": float(len(points))}


async def workers_killed(site: Site, seed: int) -> dict[str, float]:
    """Workers die at any time and before they commit; their leases run out and others take the work."""
    rng = random.Random(seed)
    names = ["worker-0", "worker-1", "worker-2"]
    site.scheduler()
    for name in names:
        site.worker(name)
    await site.submit(*site.tasks(more(90)))
    kills = rounds = 0
    while rounds < ROUNDS:
        if kills == MOST_KILLS:
            raise AssertionError(f"{kills} workers were killed, {rounds} of them held a lease")
        await site.progress(8)
        name = rng.choice(names)
        at_commit = f"consumer:before-commit:{rng.randint(1, 4)}"
        await site.holds(name)
        lapses, losses = site.seen.lapses[name], _losses(site, name)
        if (status := await site.kill(name)) != KILLED:
            raise AssertionError(f"{name} ended with status {status}, it was to be killed")
        kills += 1
        if rounds % 2:  # whoever watches it says how it ended, and starts it again at once
            gone = WorkerHeartbeat(
                worker=name, service="sampler", pid=site.children[name].pid, ended="signal"
            )
            await site.say("heartbeats", gone, name)
            site.keep(WORKER, name)
            lost = partial(_more, _losses, site, name, losses)
        else:  # it stays away: nobody but time says that it is gone
            lost = partial(_more, _lapses, site, name, lapses)
        # What it said that it held may all have been done by the time it was killed.
        await site.until(f"{name} lost its leases", partial(_either, lost, site.all_ended))
        if not rounds % 2:
            site.keep(WORKER, name, TEMPER_FAULT=at_commit)
        rounds += lost()
        await site.submit(*site.tasks(more(15)))
    await marked(site, "consumer_before-commit", WAIT_S)
    return {
        "kills": float(kills),
        "lapsed_leases": float(site.seen.lapses.total()),
        "ended_leases": float(site.seen.deaths.total()),
    }


def _lapses(site: Site, name: str) -> int:
    """Leases of a worker that ran out."""
    return site.seen.lapses[name]


def _losses(site: Site, name: str) -> int:
    """Those, and leases that were taken back because its process had ended."""
    return site.seen.lapses[name] + site.seen.deaths[name]


def _either(one: Callable[[], bool], other: Callable[[], bool]) -> bool:
    return one() or other()


def _more(count: Callable[[Site, str], int], site: Site, name: str, before: int) -> bool:
    return count(site, name) > before
