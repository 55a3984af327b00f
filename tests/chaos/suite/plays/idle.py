"""Nothing to do for a long time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.chaos.suite.plays.common import LONG, more
from tests.chaos.suite.site import WAIT_S, Site

STILL_MIB = 0.25
LOOKS = 6
"""Looks, half a second from one to the next, in which memory stands still once caches and pools are full."""


async def idle(site: Site, seed: int) -> dict[str, float]:
    """Nothing to do for a long time: no memory grows."""
    lasts_s = float(os.environ.get("TEMPER_CHAOS_SOAK_S", "3600" if LONG else "8"))
    site.scheduler()
    site.worker("worker-0")
    await site.submit(*site.tasks(more(30)))
    await site.until("every task ended", site.all_ended)
    samples: list[tuple[float, float]] = []
    pid = site.children["scheduler"].pid
    await _warm(pid)
    began = time.monotonic()
    while time.monotonic() - began < lasts_s:
        samples.append((time.monotonic() - began, _rss_mib(pid)))
        await asyncio.sleep(min(1.0, lasts_s / 12.0))  # the time that is being looked at
    half = len(samples) // 2
    before = max(value for _, value in samples[: max(1, half)])
    after = max(value for _, value in samples[half:])
    if after > before + 4.0 + 0.02 * before:
        raise AssertionError(f"the idle scheduler grew from {before:.1f} to {after:.1f} MiB in {lasts_s:g} s")
    return {"rss_mib": after, "growth_mib": after - before, "idle_s": lasts_s, "looks": float(len(samples))}


async def _warm(pid: int) -> None:
    """Until a process has what memory it needs."""
    looks: list[float] = []
    ends = time.monotonic() + WAIT_S
    while len(looks) < LOOKS or max(looks[-LOOKS:]) - min(looks[-LOOKS:]) > STILL_MIB:
        if time.monotonic() > ends:
            raise AssertionError(f"the memory does not stand still in {WAIT_S:g} s: {looks[-LOOKS:]} MiB")
        looks.append(_rss_mib(pid))
        await asyncio.sleep(0.5)


def _rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) / 1024.0
    raise AssertionError(f"process {pid} has no memory")
