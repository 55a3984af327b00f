"""Processes that stand still, clocks that are wrong, and owners that wake up when another has taken over."""

from __future__ import annotations

import asyncio
import random
import signal
import time

from tests.chaos.suite.plays.common import LONG, SCHEDULER, WORKER, marked, more
from tests.chaos.suite.site import WAIT_S, Site

DAYS_30 = 30 * 86_400
DAY = 86_400
MOST_STOPS = 3


async def blocked(site: Site, seed: int) -> dict[str, float]:
    """Processes stand still for longer than leases last (as with a blocked event loop), and go on as if nothing had been."""
    rng = random.Random(seed)
    site.keep(SCHEDULER, "scheduler")
    names = ["worker-0", "worker-1"]
    for name in names:
        site.keep(WORKER, name)
    await site.submit(*site.tasks(more(80)))
    lasts_s = 60.0 if LONG else 3.2 * site.layout.lease_s
    victim = rng.choice(names)
    await site.progress(8)
    before, stops = site.seen.lapses[victim], 0
    # What it said that it held may all have been done by the time it stood.
    while site.seen.lapses[victim] == before and stops < MOST_STOPS:
        await site.holds(victim)
        await _stand_still(site, victim, lasts_s)
        stops += 1
        await site.until(
            f"leases of {victim} ran out", lambda: site.seen.lapses[victim] > before or site.all_ended()
        )
    lapsed = site.seen.lapses[victim] - before
    await site.submit(*site.tasks(more(10)))
    await site.busy(8)
    seq = await _stand_still(site, "scheduler", lasts_s)
    await site.until(
        "the scheduler goes on",
        lambda: site.seen.stat("scheduler", "seq", site.children["scheduler"].pid) > max(0.0, seq),
    )
    await site.submit(*site.tasks(more(10)))
    return {"stops": stops + 1.0, "lapsed_leases": float(lapsed)}


async def _stand_still(site: Site, name: str, lasts_s: float) -> float:
    """Stop a process for so long, with more to do meanwhile; its `seq` when it stood."""
    child = site.children[name]
    child.signal(signal.SIGSTOP)
    await child.stopped()
    await site.submit(*site.tasks(more(10)))
    seq = site.seen.stat(name, "seq", child.pid)
    await asyncio.sleep(lasts_s)  # how long it stands still
    if child.phase != "T":
        raise AssertionError(f"{name} did not stand still: state {child.phase or 'ended'}")
    child.signal(signal.SIGCONT)
    return max(seq, site.seen.stat(name, "seq", child.pid))


async def clock_jumps(site: Site, seed: int) -> dict[str, float]:
    """The wall clock of scheduler and workers is wrong by 30 days, from the start on or in the middle, in both directions."""
    rng = random.Random(seed)
    signs = [1, -1]
    rng.shuffle(signs)
    site.scheduler()
    site.keep(WORKER, "worker-0")
    await site.submit(*site.tasks(more(20)))
    for sign in signs:
        await site.progress(5)
        await site.kill("scheduler")
        site.keep(SCHEDULER, "scheduler", TEMPER_FAULT_CLOCK=f"{sign * DAYS_30}@{rng.choice([0, 2])}")
        await site.submit(*site.tasks(more(20)))
        await _off(site, "scheduler", sign)
        await site.submit(*site.tasks(more(5)))
        await site.until(f"every task ended with the clock {sign * 30:+d} days off", site.all_ended)
        await site.submit(*site.tasks(more(15)))
        await site.kill("scheduler")
        site.scheduler()  # and right again
        await _off(site, "scheduler", 0)
        await site.until("every task ended with the clock right again", site.all_ended)
        await site.submit(*site.tasks(more(10)))
    await site.kill("worker-0")
    site.worker("worker-0", TEMPER_FAULT_CLOCK=f"{signs[0] * DAYS_30}")
    await _off(site, "worker-0", signs[0])
    await site.submit(*site.tasks(more(10)))
    return {"jumps": 3.0}


async def _off(site: Site, name: str, sign: int) -> None:
    """Until a record of the process that has this name now shows its clock so many months off, by the Kafka client's own."""

    def shows() -> bool:
        skew_s = site.seen.skew_s.get((name, site.children[name].pid))
        return skew_s is not None and abs(skew_s - sign * DAYS_30) < DAY

    await site.until(f"the clock of {name} {sign * 30:+d} days off", shows)


async def two_schedulers(site: Site, seed: int) -> dict[str, float]:
    """The scheduler that owns the log stands still at a named point; another takes over; the first wakes up and is ignored."""
    rng = random.Random(seed)
    site.worker("worker-0")
    site.worker("worker-1")
    slowest = 0.0
    others = ["after-journal", "before-effects", "after-effects", "before-redis"]
    # Whoever stands before the journal writes there when it wakes up: a late entry, for sure.
    points = ["before-journal", *rng.sample(others, 4 if LONG else 2)]
    rng.shuffle(points)
    for turn, point in enumerate(points):
        zombie, heir = f"scheduler-{turn}a", f"scheduler-{turn}b"
        site.keep(SCHEDULER, zombie, TEMPER_FAULT=f"scheduler:{point}:{rng.randint(3, 9)}:stop")
        await site.submit(*site.tasks(more(30)))
        await marked(site, f"scheduler_{point}", WAIT_S)
        await site.children[zombie].stopped()
        site.keep(SCHEDULER, heir)
        began = time.monotonic()
        await site.submit(*site.tasks(more(20)))
        await site.heard(heir)
        slowest = max(slowest, time.monotonic() - began)
        await site.progress(8, "another scheduler took over")
        site.children[zombie].signal(signal.SIGCONT)
        await site.submit(*site.tasks(more(10)))
        await site.until("every task ended", site.all_ended)
        if turn + 1 < len(points):
            await asyncio.gather(site.kill(zombie), site.kill(heir))
    return {"takeovers": float(len(points)), "slowest_takeover_s": slowest}
