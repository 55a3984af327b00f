"""Members that come and go: rebalances during work, and everything told to stop under load."""

from __future__ import annotations

import random
import signal
import time
from functools import partial

from tests.chaos.suite.plays.common import more
from tests.chaos.suite.site import Site


async def rebalance(site: Site, seed: int) -> dict[str, float]:
    """Workers join and leave all the time, so that the partitions of the work never rest."""
    rng = random.Random(seed)
    site.scheduler()
    present = {"worker-0", "worker-1"}
    for name in sorted(present):
        site.worker(name)
    for name in sorted(present):
        await site.heard(name)
    await site.submit(*site.tasks(more(120)))
    dealt = 0
    moves = 6
    for move in range(moves):
        await site.progress(5)
        if site.all_ended():
            await site.submit(*site.tasks(more(20)))
        if move % 2:  # who has not come yet would leave unnoticed
            await site.until("all are members", partial(_dealt_anew, site, sorted(present), {}))
        before = {name: _dealt(site, name) for name in present}
        if len(present) > 1 and rng.random() < 0.5:
            name = rng.choice(sorted(present))
            present.discard(name)
            await site.kill(name, rng.choice([signal.SIGTERM, signal.SIGKILL]))
        else:
            name = f"worker-{move + 2}"
            present.add(name)
            site.worker(name)
        if move % 2:  # seen to the end; every other time the next comes in the middle of it
            await site.until(
                "the partitions were dealt out anew", partial(_dealt_anew, site, sorted(present), before)
            )
            dealt += 1
    return {"moves": float(moves), "dealt_anew": float(dealt)}


def _dealt_anew(site: Site, names: list[str], before: dict[str, float]) -> bool:
    return all(_dealt(site, name) > max(0.0, before.get(name, 0.0)) for name in names)


def _dealt(site: Site, name: str) -> float:
    """Times that a worker was given its partitions."""
    return site.seen.stat(name, "rebalances", site.children[name].pid)


async def sigterm(site: Site, seed: int) -> dict[str, float]:
    """Everything is told to stop under load, again and again: nothing is lost and no attempt is charged."""
    rng = random.Random(seed)
    names = ["worker-0", "worker-1"]

    def start(name: str) -> None:
        if name == "scheduler":
            site.scheduler()
        else:  # too short a drain for the longer attempts: those are given back
            site.worker(name, TEMPER_DRAIN_S="2")

    for name in (*names, "scheduler"):
        start(name)
    await site.submit(*site.tasks(more(150)))
    slowest = 0.0
    stops = holding = 0
    for _ in range(3):
        await site.progress(10)
        for name in rng.sample([*names, "scheduler"], 3):
            if name == "scheduler":
                await site.heard(name)
            else:
                await site.holds(name)
                holding += 1
            began = time.monotonic()
            child = site.children[name]
            status = await site.kill(name, signal.SIGTERM)
            slowest = max(slowest, time.monotonic() - began)
            if status != 0:
                raise AssertionError(f"{name} ended with status {status}: {child.said()[-1500:]}")
            stops += 1
            # At once and under the same name, as an orchestrator does.
            start(name)
        await site.submit(*site.tasks(more(30)))
    await site.until("every task ended", site.all_ended)
    charged = {name: state for name, state in site.states.items() if state.losses}
    if charged:
        name, state = min(charged.items())
        raise AssertionError(
            f"{len(charged)} tasks paid for a drain, e.g. {name}: {state.losses} losses, {state.reason}"
        )
    return {"stops": float(stops), "stopped_holding": float(holding), "slowest_stop_s": slowest}
