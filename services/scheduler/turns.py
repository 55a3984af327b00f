"""The loop around the fold. Invariant: journal first, then fold, then effects, then the projection; never another order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import event_id
from schemas.journal import BatchFolded
from services.runtime.catalog import Catalog
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.wire import Record
from services.scheduler.fold import pending, step
from services.scheduler.handlers import records_of
from services.scheduler.journal import batch_of, moved, ordered, outgoing
from services.scheduler.policies import Policies
from services.scheduler.settings import BATCH, STALL_S
from services.scheduler.snapshot import snapshot, take_changes
from services.scheduler.state import State, next_due
from services.scheduler.store import Store
from services.scheduler.summary import figures


def steady_clock(floor: float) -> Callable[[], float]:
    """Seconds since the epoch, from the wall once and from the monotonic clock after: it never jumps.

    It starts at `floor` (the log's last time) where the wall is behind that, so that time goes on in any case.
    """
    base = max(floor, time.time()) - time.monotonic()
    return lambda: base + time.monotonic()


class Turns:
    """One incarnation's turns."""

    def __init__(
        self,
        *,
        state: State,
        policies: Policies,
        catalog: Catalog,
        reader: LogReader,
        producer: Producer,
        store: Store,
        journal: int,
        tick_s: float,
        clock: Callable[[], float],
    ) -> None:
        """`journal`: offset of the next journal entry; `reader` stands at the state's offsets."""
        self.state = state
        self._policies, self._catalog = policies, catalog
        self._reader, self._producer, self._store = reader, producer, store
        self._journal = journal
        self._tick_s = tick_s
        self._clock = clock
        self._targets: dict[str, int] | None = None
        """Ends of the log that must be read before anything may expire; None once they are."""
        self._last = float("-inf")
        self.turns = 0

    async def turn(self) -> None:
        """Read, journal, fold, emit, store; nothing is journalled when nothing came and nothing is due.

        Raises:
            Unavailable: the broker fails.
            Fenced: a newer scheduler runs.
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
        ranges = moved(before, after)
        now = max(self._clock(), self.state.meta.now)
        if ranges or woken or (self._targets is None and pending(self.state, now)):
            meta = self.state.meta
            entry = BatchFolded(
                run=self._policies.run,
                seq=meta.seq + 1,
                now=now,
                ranges=ranges,
                epoch=meta.epoch,
                caught_up=self._targets is None,
            )
            await self._take(entry, ordered(records))
        self.turns += 1

    async def _take(self, entry: BatchFolded, records: list[Record]) -> None:
        await self._producer.emit(outgoing(entry))
        self._journal += 1
        effects = step(self.state, self._policies, batch_of(entry, records))
        out = records_of(effects, self._catalog, epoch=entry.epoch, seq=entry.seq)
        if out:
            await self._producer.emit(*out)
        await self.save()

    async def save(self) -> None:
        """Bring the projection up to the state.

        Raises:
            Fenced: a newer scheduler runs.
        """
        state = self.state
        await self._store.save(
            take_changes(state),
            lambda: snapshot(state),
            epoch=state.meta.epoch,
            seq=state.meta.seq,
            journal=self._journal,
        )

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
            stats=figures(self.state, self._policies, self._clock()) | self._store.stats,
            pid=pid,
            started_at=started_at,
        )
        name = event_id("WorkerHeartbeat", worker, started_at.hex(), self.turns)
        await self._producer.emit(Outgoing(topic="heartbeats", event=event, key=worker, id=name))

    def _patience(self) -> float:
        due = next_due(self.state)
        if due is None:
            return self._tick_s
        return min(self._tick_s, max(0.001, due - self._clock()))

    async def _reached(self, positions: dict[str, int], *, idle: bool) -> bool:
        if self._targets is None or all(positions.get(name, 0) >= end for name, end in self._targets.items()):
            return True
        if idle:
            await asyncio.sleep(0.01)  # nothing buffered yet: let the fetcher work
            return await self._reader.caught_up()
        return False
