"""Heartbeats of the sampler. Invariant: every lease held is named at least once a period; a lease that ended is named once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from schemas.heartbeats import WorkerHeartbeat
from schemas.topics import HEARTBEATS
from services.runtime.health import Progress
from services.runtime.producer import Outgoing, Producer
from services.sampler.engines.driver import Driver
from services.sampler.handlers import Desk
from services.sampler.intake import Intake
from services.sampler.settings import SamplerSettings
from services.sampler.versions import Versions

COALESCE_S = 0.05
"""Leases that end within this time share a heartbeat."""
OVERDUE = 10
"""Periods without a heartbeat after which the worker counts as stuck."""


class Pulse:
    """Says what this worker holds and does."""

    def __init__(self, settings: SamplerSettings, producer: Producer, progress: Progress) -> None:
        self._settings, self._producer, self._progress = settings, producer, progress
        self._started = time.time()
        self._mark = (time.monotonic(), 0, 0.0)
        self._rates = {"tokens_per_s": 0.0, "engine_busy": 0.0}
        self._ended = asyncio.Event()
        self._source: Callable[[], Source | None] = lambda: None
        self._one = asyncio.Lock()

    async def run(self, source: Callable[[], Source | None], wake: asyncio.Event) -> None:
        """Beat until `end`, and once more then."""
        period = self._settings.engine.heartbeat_s
        self._source = source
        while True:
            ending = self._ended.is_set()
            wake.clear()
            await self._beat(source(), draining=ending)
            if ending:
                return
            waits = [asyncio.ensure_future(event.wait()) for event in (wake, self._ended)]
            await asyncio.wait(waits, timeout=period, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.sleep(min(COALESCE_S, period))

    async def now(self) -> None:
        """Send a heartbeat of what is so now; it is in the log when this returns."""
        await self._beat(self._source(), draining=self._ended.is_set())

    def end(self) -> None:
        """Send the last heartbeat now."""
        self._ended.set()

    async def _beat(self, source: Source | None, *, draining: bool) -> None:
        async with self._one:
            await self._write(source, draining=draining)

    async def _write(self, source: Source | None, *, draining: bool) -> None:
        settings = self._settings
        now = time.time()
        leases: tuple[str, ...] = ()
        released = 0
        inside: dict[str, int] = {}
        event = WorkerHeartbeat(
            worker=settings.worker,
            service="sampler",
            pool=settings.engine.pool,
            draining=draining,
            pid=os.getpid(),
            started_at=self._started,
        )
        if source is not None:
            leases, released = source.intake.held(), len(source.desk.released)
            inside = source.intake.inside()
            serving = source.intake.current is not None and not source.desk.draining
            event = WorkerHeartbeat(
                worker=settings.worker,
                service="sampler",
                pool=settings.engine.pool,
                slots=settings.engine.slots if serving else 0,
                tokens=source.driver.tokens() if serving else 0,
                leases=leases,
                running=tuple(inside),
                released=tuple(source.desk.released),
                draining=draining or source.desk.draining,
                policy_version=source.driver.version(),
                refused=dict(source.versions.refused),
                offsets=source.offsets(),
                stats=self._stats(source),
                pid=os.getpid(),
                started_at=self._started,
            )
        await self._producer.emit(Outgoing(topic=HEARTBEATS.name, event=event, key=settings.worker))
        self._progress.beat("heartbeat", deadline_s=OVERDUE * settings.engine.heartbeat_s + 30.0)
        if source is not None:
            source.desk.told = inside
            del source.desk.released[:released]
            source.intake.renewed(leases, now)

    def _stats(self, source: Source) -> dict[str, float]:
        stats, driver = source.driver.stats, source.driver
        now = time.monotonic()
        at, tokens, busy = self._mark
        if now - at >= self._settings.engine.heartbeat_s:
            self._rates = {
                "tokens_per_s": (stats.tokens - tokens) / (now - at),
                "engine_busy": min(1.0, (stats.busy_s - busy) / (now - at)),
            }
            self._mark = (now, stats.tokens, stats.busy_s)
        return {
            "tokens": float(stats.tokens),
            "prefix_tokens": float(driver.prefix_tokens()),
            "samples": float(source.desk.samples),
            "abandoned": float(source.desk.abandoned),
            "running": float(driver.running()),
            "groups": float(source.intake.running()),
            "waiting": float(len(source.intake.waiting())),
            "fenced": float(source.intake.fence.dropped),
            "loads": float(stats.loads),
            "load_s": stats.load_s,
            "canary_difference": source.versions.difference,
            **self._rates,
        }


class Source:
    """Where a heartbeat's contents come from, once the service is up."""

    def __init__(
        self,
        desk: Desk,
        intake: Intake,
        driver: Driver,
        versions: Versions,
        offsets: Callable[[], dict[str, int]],
    ) -> None:
        self.desk, self.intake, self.driver, self.versions, self.offsets = (
            desk,
            intake,
            driver,
            versions,
            offsets,
        )
