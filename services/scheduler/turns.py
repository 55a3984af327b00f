"""The loop around the fold. Invariant: journal first, then fold, then effects, then the projection; never another order.

The effects of an entry go out while the next inputs are read, and are acknowledged before the next entry is written: so a
successor has to repeat those of the last entry only. The projection is written beside all this and may lag.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import event_id
from schemas.journal import BatchFolded
from services.runtime import faults
from services.runtime.catalog import Catalog
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.wire import Record
from services.scheduler.fold import pending, step
from services.scheduler.grants import owing
from services.scheduler.journal import Journal, batch_of, moved, ordered
from services.scheduler.outbox import outbox
from services.scheduler.policies import Policies
from services.scheduler.projection import Projection
from services.scheduler.settings import BATCH, SAVE_S, STALL_S
from services.scheduler.state import State, next_due
from services.scheduler.summary import figures

Mark = tuple[int, int, int, dict[str, int]]
"""Epoch, sequence number, offset of the next journal entry, offsets of the inputs."""
STOP_S = 10.0
"""Longest that the end waits for effects and for the last write of the projection."""


def steady_clock(floor: float) -> Callable[[], float]:
    """Seconds since the epoch, from the wall once and from the monotonic clock after: it never jumps.

    It starts at `floor` (the log's last time) where the wall is behind that, so that time goes on in any case.
    """
    base = max(floor, time.time()) - time.monotonic()
    return lambda: base + time.monotonic()


class Turns:
    """One incarnation's turns on one shard."""

    def __init__(
        self,
        *,
        state: State,
        policies: Policies,
        catalog: Catalog,
        reader: LogReader,
        producer: Producer,
        projection: Projection,
        journal: Journal,
        tick_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`reader` stands at the state's offsets."""
        self.state = state
        self._policies, self._catalog = policies, catalog
        self._reader, self._producer, self._projection = reader, producer, projection
        self._journal = journal
        self._tick_s = tick_s
        self._clock = clock
        self._targets: dict[str, int] | None = None
        """Ends of the log that must be read before anything may expire; None once they are."""
        self._last = float("-inf")
        self._effects: asyncio.Task[None] | None = None
        """Those of the newest entry, on their way."""
        self._waiting: list[tuple[asyncio.Future[Any], Callable[[Mark], Any]]] = []
        self.turns = 0
        self.entries = 0

    async def turn(self) -> None:
        """Read, journal, fold, emit; nothing is journalled when nothing came and nothing is due.

        Raises:
            Unavailable: the broker fails.
            Fenced: another scheduler has taken over.
        """
        if time.monotonic() - self._last > STALL_S:
            self._targets = await self._reader.end_offsets()
        before = self._reader.positions()
        records = await self._reader.poll(0.0 if self._targets is not None else self._patience(), BATCH)
        after = self._reader.positions()
        woken = self._targets is not None and await self._reached(after, idle=not records)
        if woken:
            self._targets = None
        self._last = time.monotonic()
        await self._confirmed()
        self._projection.offer(self._journal.position)
        self._rest()
        ranges = moved(before, after)
        now = max(self._clock(), self.state.meta.now)
        if ranges or woken or (self._targets is None and self._due(now)):
            meta = self.state.meta
            entry = BatchFolded(
                run=self._policies.run,
                seq=meta.seq + 1,
                now=now,
                ranges=ranges,
                epoch=meta.epoch,
                shard=self._policies.shard,
                shards=self._policies.shards,
                caught_up=self._targets is None,
            )
            await self._take(entry, ordered(records))
        self.turns += 1

    async def _take(self, entry: BatchFolded, records: list[Record]) -> None:
        faults.at("scheduler:before-journal")
        await self._journal.append(entry)
        faults.at("scheduler:after-journal")
        effects = step(self.state, self._policies, batch_of(entry, records, self.state, self._policies))
        self._projection.note()
        self.entries += 1
        out = outbox(
            effects,
            self._catalog,
            shard=self._policies.shard,
            sender=entry.epoch,
            epoch=entry.epoch,
            seq=entry.seq,
        )
        if out:
            faults.at("scheduler:before-effects")
            self._effects = asyncio.create_task(self._producer.emit(*out), name="effects")

    async def _confirmed(self) -> None:
        """Wait for the acknowledgement of the newest entry's effects."""
        effects, self._effects = self._effects, None
        if effects is not None:
            await effects
            faults.at("scheduler:after-effects")

    async def at_rest[T](self, look: Callable[[Mark], T]) -> T:
        """At the next moment at which the effects of all entries are out, look at the state; `look` is told where it stands."""
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiting, look))
        found: T = await waiting
        return found

    def _rest(self) -> None:
        meta = self.state.meta
        for waiting, look in self._waiting:
            if not waiting.done():
                mark = (meta.epoch, meta.seq, self._journal.position, dict(meta.offsets))
                waiting.set_result(look(mark))
        self._waiting.clear()

    async def end(self) -> None:
        """Finish what is under way: effects out, projection written as far as its server takes it.

        Raises:
            Unavailable: the effects are not acknowledged.
        """
        try:
            async with asyncio.timeout(STOP_S):
                await self._confirmed()
                await self._projection.finish(self._journal.position)
        except TimeoutError as error:
            raise Unavailable(
                f"shard {self._policies.shard} was left after {STOP_S:.0f} s without its last write; a successor completes it"
            ) from error

    async def heartbeat(self, worker: str, pid: int, started_at: float) -> None:
        """Tell observers how the queue stands.

        Raises:
            Unavailable: the broker fails.
        """
        event = WorkerHeartbeat(
            worker=worker,
            service="scheduler",
            policy_version=self.state.meta.version,
            offsets=self._reader.positions(),
            stats=figures(self.state, self._policies, self._clock()) | self._projection.stats,
            pid=pid,
            started_at=started_at,
        )
        name = event_id("WorkerHeartbeat", worker, started_at.hex(), self.turns)
        await self._producer.emit(Outgoing(topic="heartbeats", event=event, key=worker, id=name))

    def _due(self, now: float) -> bool:
        return pending(self.state, now) or owing(self.state, self._policies, now)

    def _patience(self) -> float:
        longest = min(self._tick_s, SAVE_S) if self._projection.dirty else self._tick_s
        due = next_due(self.state)
        if due is None:
            return longest
        return min(longest, max(0.001, due - self._clock()))

    async def _reached(self, positions: dict[str, int], *, idle: bool) -> bool:
        if self._targets is None or all(positions.get(name, 0) >= end for name, end in self._targets.items()):
            return True
        if idle:
            await asyncio.sleep(0.01)  # nothing buffered yet: let the fetcher work
            return await self._reader.caught_up()
        return False
