"""The trainer's loop: read, assemble, step, write, tell.

Invariant: the event of a version follows its files, and the offsets inside them cover every group that no version has been
trained on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from typing import Protocol

import msgspec

from schemas.topics import TASK_STATES
from services.runtime import faults, telemetry
from services.runtime.fence import EpochFence
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.trainer import handlers
from services.trainer.assemble import Assembler
from services.trainer.attempts import SchedulerTime
from services.trainer.session import Session

POLL_S = 0.25
STEP_DEADLINE_S = 600.0
"""A step, or the reading of a poll, that takes longer makes the service unhealthy."""
log = logging.getLogger(__name__)


class Reader(Protocol):
    """What the loop needs of a log reader."""

    async def poll(self, timeout_s: float, max_records: int = 500) -> list[Record]:
        """The next records."""

    def positions(self) -> dict[str, int]:
        """Next offset by `topic/partition`."""

    async def end_offsets(self) -> dict[str, int]:
        """Offset that the next record written will have, by `topic/partition`."""

    async def caught_up(self) -> bool:
        """Whether all that was written before the call has been read."""


class Writer(Protocol):
    """What the loop needs of a producer."""

    async def emit(self, *outgoing: Outgoing) -> None:
        """Write and wait for the acknowledgements."""


class Loop:
    """State of the loop between two steps."""

    def __init__(
        self, session: Session, assembler: Assembler, reader: Reader, writer: Writer, life: Lifecycle
    ) -> None:
        self._session, self._assembler = session, assembler
        self._reader, self._writer, self._life = reader, writer, life
        self._carried = session.record.used_s
        # The budget runs from the first training record of the run, not while engines start.
        self._began: float | None = time.monotonic() if session.version > 0 else None
        self._idle_since = self._heard = time.monotonic()
        self._last: dict[str, float] = dict(session.record.metrics)
        self._fence = EpochFence()
        self._time = SchedulerTime()
        self._sealed: dict[str, int] | None = None
        """How far must be read before the ends of attempts that are sealed are final; None while there are none."""

    def used_s(self) -> float:
        """Wall seconds of the budget used, earlier processes included."""
        return self._carried + (0.0 if self._began is None else time.monotonic() - self._began)

    def stats(self) -> dict[str, float]:
        """Figures for the heartbeat."""
        counts = msgspec.structs.asdict(self._assembler.counts)
        keep = (
            "loss",
            "reward_mean",
            "tokens",
            "train_s",
            "save_s",
            "wait_s",
            "staleness_mean",
            "grad_norm",
            "entropy",
        )
        return {name: float(value) for name, value in counts.items()} | {
            "version": float(self._session.version),
            "ready": float(self._assembler.ready),
            "waiting": float(self._assembler.waiting),
            "used_s": self.used_s(),
            **{name: self._last[name] for name in keep if name in self._last},
        }

    async def run(self) -> None:
        """Until the run is done, or the service is told to stop."""
        settings = self._session.settings
        # What lies in the log is read before the first step: the order of completion then does not depend on polling.
        while not self._life.stop.is_set() and not await self._reader.caught_up():
            await self._read()
        while not self._life.stop.is_set():
            if self._assembler.due(settings.groups_per_step) or self._starving():
                await self._step()
            elif self.used_s() >= settings.budget_s:
                await asyncio.to_thread(self._session.finish)
                await self._publish(self._session.record.metrics)
            else:
                await self._read()
            if self._session.record.final:
                return

    async def _read(self) -> None:
        self._life.progress.beat("trainer", deadline_s=STEP_DEADLINE_S)
        records = await self._reader.poll(POLL_S)
        ready = self._assembler.ready
        heard = any(record.topic == TASK_STATES.name for record in records)
        now = self._time.tick(time.monotonic(), heard=heard)
        if handlers.feed(self._assembler, self._fence.admitted(records), now) and self._began is None:
            self._began = time.monotonic()
        if self._assembler.ready > ready:
            self._heard = time.monotonic()
        await self._close(idle=not records)
        overdue = self._assembler.expire(now)
        if overdue:
            log.warning(
                "%d groups forgotten, of which nothing was heard for longer than an attempt may take: %s",
                len(overdue),
                ", ".join(overdue[:3]),
            )

    async def _close(self, *, idle: bool) -> None:
        """Forget groups whose attempts are over, once all was read that was in the log when that was heard."""
        assembler = self._assembler
        if self._sealed is None and assembler.attempts.noted:
            assembler.attempts.seal()
            ends = await self._reader.end_offsets()
            self._sealed = {
                name: end for name, end in ends.items() if name.rpartition("/")[0] in handlers.PARTS
            }
        if self._sealed is None:
            return
        positions = self._reader.positions()
        read = all(positions.get(name, 0) >= end for name, end in self._sealed.items())
        if read or (idle and await self._reader.caught_up()):
            self._sealed = None
            over = assembler.close()
            if over:
                log.info("%d groups forgotten: their attempts ended without them", len(over))

    def _starving(self) -> bool:
        """Whether nothing comes that a step could wait for; an attempt that is under way may bring another group."""
        assembler, settings = self._assembler, self._session.settings
        quiet_s = time.monotonic() - self._heard
        patience_s = assembler.longest_s if assembler.attempts.under_way else settings.group_timeout_s
        return quiet_s > max(patience_s, settings.group_timeout_s) and assembler.ready > 0

    async def _step(self) -> None:
        session, assembler, settings = self._session, self._assembler, self._session.settings
        # May be none, when all were too old or lost: the version moves on all the same, since admission waits for it.
        groups = assembler.take(settings.groups_per_step, session.version)
        wait_s = time.monotonic() - self._idle_since
        began_s = time.time()
        with telemetry.span("train", attributes={"version": session.version + 1, "groups": len(groups)}):
            metrics = await asyncio.to_thread(session.train, groups)
            counts = msgspec.structs.asdict(assembler.counts)
            metrics |= {
                name: float(value) for name, value in counts.items() if name not in ("stale", "consumed")
            }
            metrics |= {"rejected_stale": float(assembler.counts.stale), "wait_s": wait_s}
            used = self.used_s()
            positions = self._reader.positions()
            metrics = await asyncio.to_thread(
                session.save,
                offsets=assembler.low_water(positions),
                assembly=assembler.save(positions),
                used_s=used,
                final=session.version >= settings.steps or used >= settings.budget_s,
                metrics=metrics,
            )
            await self._publish(metrics)
        for group in groups:  # the end of each task's own trace
            about: dict[str, telemetry.Value] = {
                "temper.group": group.id,
                "temper.domain": group.domain,
                "temper.version": session.version,
            }
            with telemetry.span(
                "train group", parent=group.trace, kind="consumer", attributes=about, start_s=began_s
            ):
                pass
        self._idle_since = self._heard = time.monotonic()
        self._last = dict(metrics)
        log.info(
            "step %d: reward %.3f, loss %.4f, %d groups, waited %.2f s, trained %.2f s, saved %.3f s",
            session.version,
            metrics.get("reward_mean", math.nan),
            metrics["loss"],
            len(groups),
            wait_s,
            metrics["train_s"],
            metrics["save_s"],
        )

    async def _publish(self, metrics: Mapping[str, float]) -> None:
        record = self._session.record
        faults.at("trainer:before-event")
        await self._writer.emit(
            handlers.published(
                record.run, self._session.policy, final=record.final, metrics=metrics, groups=record.groups
            )
        )
        faults.at("trainer:after-event")
