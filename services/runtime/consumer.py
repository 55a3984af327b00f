"""Work from topics, at least once. Invariant: an offset is committed only when every record below it is finished.

The loop never waits for work: a handler hands its record off and calls `done` when the work is over, in any order.
Deliveries are committed *before* the records are handed out, so a record that kills its worker is recognised
by the next one (`Record.redelivered`), wherever that one runs.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from services.runtime.assignment import STATS, Assignment, partition_of
from services.runtime.deadletters import bury
from services.runtime.errors import Unavailable
from services.runtime.producer import Producer
from services.runtime.reader import LogReader, OffsetLost
from services.runtime.topics import partition_counts
from services.runtime.window import Ledger
from services.runtime.wire import DecodeError, RawRecord, Record, UnknownEvent, unpack

__all__ = ["Done", "Handle", "LogReader", "OffsetLost", "WorkConsumer"]

COMMIT_S = 0.2
"""Finished work is committed about this often."""
PACE_S = 0.05
"""While work is in flight, new records are handed out (and their deliveries committed) at most this often."""
REJOIN_S = 120.0
"""A group may take this long to deal its partitions out anew."""
Done = Callable[[], None]
Handle = Callable[[Record, Done], Awaitable[None] | None]


class WorkConsumer:
    """Group member with a bounded window of unfinished records."""

    def __init__(
        self,
        kafka: str,
        prefix: str,
        topics: list[str],
        group: str,
        producer: Producer,
        *,
        window: int,
        owner: bool = True,
        redeliveries: int = 3,
        instance: str = "",
        session_s: float = 10.0,
    ) -> None:
        """`topics` and `group` without prefix; `producer` writes dead letters.

        `window`: unfinished records at most. `owner`: unknown events are dead letters, not skipped.
        `redeliveries`: a record delivered this often without being finished is handed out with
        `record.redelivered >= redeliveries`, for the handler to end; the last delivery before that is made
        alone, so that a record which kills its worker takes no other with it. `instance`: a stable name across
        restarts, which saves a rebalance (static membership). `session_s`: silence after which the group gives
        the partitions away.
        """
        if window < 1:
            raise ValueError(f"window is {window}, it must be at least 1")
        self._kafka, self._prefix, self._names = kafka, prefix, [prefix + topic for topic in topics]
        self._group, self._producer, self._window, self._owner = prefix + group, producer, window, owner
        self.redeliveries = redeliveries
        self._instance, self._session_s = instance, session_s
        self._consumer: Any = None
        self._held: deque[RawRecord] = deque()
        self._alone: tuple[Ledger, int] | None = None
        self._progress = asyncio.Event()
        self.stats: dict[str, float] = dict.fromkeys(STATS, 0.0)
        """Counters: `ignored` is work finished after its partition was revoked; `redelivered` counts records, `skipped` those
        that came again because an older one was unfinished, though they were done themselves."""
        self._mine = Assignment(kafka, self._group, self.stats, self._forget)

    @property
    def unfinished(self) -> int:
        """Records handed out and not done."""
        return self._mine.unfinished

    def positions(self) -> dict[str, int]:
        """`topic/partition` -> the offset below which all work is finished."""
        ledgers = self._mine.ledgers.items()
        return {f"{tp.topic.removeprefix(self._prefix)}/{tp.partition}": it.committable for tp, it in ledgers}

    async def start(self) -> None:
        """Join the group.

        Raises:
            Unavailable: no broker answers, or a topic is missing.
        """
        await partition_counts(self._kafka, self._names)
        self._consumer = await self._mine.join(
            self._names, client_id=self._producer.name, instance=self._instance, session_s=self._session_s
        )

    async def stop(self) -> None:
        """Commit what is finished and leave the group; unfinished records go to the next member, uncounted."""
        self._consumer = None
        await self._mine.leave()

    async def run(self, handle: Handle, stop: asyncio.Event) -> None:
        """Hand out records until `stop` is set; work in flight goes on, and `stop()` commits what ends meanwhile.

        `handle` must not wait for the work itself: it hands the record off. An exception of it ends the loop.
        `done` is to be called in the event loop's own thread.

        Raises:
            Unavailable: the broker stays away, or a dead letter is not acknowledged.
        """
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                if self.unfinished:
                    pause_s = self._mine.committed_at + PACE_S - time.monotonic()
                    await asyncio.wait({stopping}, timeout=max(0.0, pause_s))
                await self._poll(stopping)
                portion = self._portion()
                if portion:
                    await self._hand_out(portion, handle)
                elif self._held or self.unfinished >= self._window:
                    await self._rest(stopping)
                if time.monotonic() >= self._mine.committed_at + COMMIT_S:
                    await self._mine.commit()
        finally:
            stopping.cancel()

    async def _poll(self, stopping: asyncio.Future[Any]) -> None:
        """Fetch what the window has room for; without room the partitions are paused, and the call is a sign of life."""
        room = self._window - self.unfinished - len(self._held)
        assigned = self._consumer.assignment()
        if room <= 0:
            self._consumer.pause(*assigned)
        elif paused := self._consumer.paused() & assigned:
            self._consumer.resume(*paused)
        wait_s = 0.0 if room <= 0 or self._held else COMMIT_S
        fetch = asyncio.ensure_future(self._fetch(wait_s, max(1, room)))
        # The client waits without a bound while the group is being dealt out anew.
        await asyncio.wait({fetch, stopping}, timeout=REJOIN_S, return_when=asyncio.FIRST_COMPLETED)
        if not fetch.done():
            fetch.cancel()
            if not stopping.done():
                raise Unavailable(
                    f"group {self._group}: no partitions for {REJOIN_S:.0f} s; is the broker up?"
                )
            return
        try:
            generation, batches = fetch.result()
        except KafkaError as error:
            raise Unavailable(f"group {self._group}: cannot read: {type(error).__name__}: {error}") from error
        new = {tp: batch[0].offset for tp, batch in batches.items() if tp not in self._mine.ledgers}
        if new and generation == self._mine.generation:
            await self._mine.open(new)
        if generation == self._mine.generation:
            self._held.extend(raw for batch in batches.values() for raw in batch)

    async def _fetch(self, wait_s: float, room: int) -> tuple[int, dict[TopicPartition, list[RawRecord]]]:
        """Records with the generation they were fetched in; read in one step, since it may change at any await."""
        batches = await self._consumer.getmany(timeout_ms=int(wait_s * 1000), max_records=room)
        return self._mine.generation, {tp: batch for tp, batch in batches.items() if batch}

    def _portion(self) -> list[RawRecord]:
        """Held records that may be handed out now: as many as fit, but a suspect only alone."""
        if not self._held or self._alone is not None:
            return []
        if self._suspect(self._held[0]):
            return [] if self.unfinished else [self._held.popleft()]
        portion: list[RawRecord] = []
        room = self._window - self.unfinished
        while self._held and len(portion) < room and not self._suspect(self._held[0]):
            portion.append(self._held.popleft())
        return portion

    def _suspect(self, raw: RawRecord) -> bool:
        deliveries = self._mine.ledgers[partition_of(raw)].deliveries(raw.offset)
        return deliveries >= max(1, self.redeliveries - 1)

    async def _hand_out(self, portion: list[RawRecord], handle: Handle) -> None:
        ledgers = dict(self._mine.ledgers)
        if self._suspect(portion[0]):
            self._alone = ledgers[partition_of(portion[0])], portion[0].offset
        taken = [raw for raw in portion if ledgers[partition_of(raw)].take(raw.offset)]
        self.stats["skipped"] += len(portion) - len(taken)
        await self._mine.commit()
        for raw in taken:
            tp = partition_of(raw)
            ledger = ledgers[tp]
            if not self._mine.holds(tp, ledger):
                continue  # Taken from us while we waited; whoever has the partition now gets the record.
            done = partial(self._finish, tp, ledger, raw.offset)
            redelivered = ledger.deliveries(raw.offset)
            self.stats["records"] += 1
            self.stats["redelivered"] += redelivered > 0
            try:
                record = unpack(raw, self._prefix, redelivered=redelivered)
            except DecodeError as error:
                await self._unreadable(raw, error)
                done()
                continue
            waiting = handle(record, done)
            if inspect.isawaitable(waiting):
                await waiting

    async def _unreadable(self, raw: RawRecord, error: DecodeError) -> None:
        if isinstance(error, UnknownEvent):
            self.stats["unknown"] += 1
            if not self._owner:
                return
        if await bury(self._producer, raw, error, prefix=self._prefix):
            self.stats["dead_letters"] += 1

    def _finish(self, tp: TopicPartition, ledger: Ledger, offset: int) -> None:
        first = ledger.finish(offset)
        if not self._mine.holds(tp, ledger):
            self.stats["ignored"] += 1
            return
        self.stats["done"] += first
        if self._alone == (ledger, offset):
            self._alone = None
        self._progress.set()

    async def _rest(self, stopping: asyncio.Future[Any]) -> None:
        """Until some work is finished, but no longer than to the next commit."""
        self._progress.clear()
        progress = asyncio.ensure_future(self._progress.wait())
        await asyncio.wait({progress, stopping}, timeout=COMMIT_S, return_when=asyncio.FIRST_COMPLETED)
        progress.cancel()

    def progressed(self, record: Record) -> None:
        """The work on an unfinished record has come further, durably: what its deliveries cost so far does not count.

        It is no suspect any more either, so that others are handed out beside it.
        """
        tp = TopicPartition(self._prefix + record.topic, record.partition)
        ledger = self._mine.ledgers.get(tp)
        if ledger is None or not ledger.progressed(record.offset):
            return  # taken from us meanwhile
        if self._alone == (ledger, record.offset):
            self._alone = None
            self._progress.set()

    def _forget(self) -> None:
        self._held.clear()
        self._alone = None
        self._progress.set()
