"""Reading a log by explicit offsets. Invariant: the reader's positions are the caller's; nothing is committed anywhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from services.runtime.closing import close
from services.runtime.cursor import Cursor, OffsetLost
from services.runtime.deadletters import bury
from services.runtime.errors import Unavailable
from services.runtime.producer import Producer
from services.runtime.topics import TopicError, partition_counts
from services.runtime.wire import DecodeError, RawRecord, Record, UnknownEvent, unpack

__all__ = ["LogReader", "OffsetLost", "Start"]

START_S = 30.0
WAIT_MS = 250
Start = Mapping[str, int] | Literal["earliest", "latest"]
log = logging.getLogger(__name__)


class LogReader:
    """Reads all partitions of some topics, outside any consumer group."""

    def __init__(
        self,
        kafka: str,
        prefix: str,
        topics: Iterable[str],
        *,
        start: Start = "earliest",
        producer: Producer | None = None,
        partition: int | None = None,
        wait_ms: int = WAIT_MS,
    ) -> None:
        """`topics` without prefix; `partition`: that one of each topic only, all unless given.

        `wait_ms`: how long the broker may hold a request for which it has nothing. A record that comes to a partition which
        the request in flight does not name is seen that much later.

        `start` maps `topic/partition` to the first offset to read; partitions it leaves out are
        read from their beginning. With a `producer`, what cannot be read becomes a dead letter; without, it is skipped.
        """
        self._kafka, self._prefix, self._topics = kafka, prefix, list(topics)
        self._start: Start = start
        self._producer = producer
        self._partition, self._wait_ms = partition, wait_ms
        self._consumer: Any = None
        self._positions: dict[TopicPartition, int] = {}
        self._cursors: dict[TopicPartition, Cursor] = {}
        self.beginnings: dict[str, int] = {}
        """`topic/partition` -> where it began when the reader was started."""
        self.stats: dict[str, float] = dict.fromkeys(("records", "dead_letters", "unknown", "skipped"), 0.0)

    async def start(self) -> None:
        """Connect, and stand at the start of every partition.

        Raises:
            Unavailable: no broker answers, or a topic is missing.
            ValueError: `start` names a partition that does not exist.
        """
        counts = await partition_counts(self._kafka, [self._prefix + topic for topic in self._topics])
        partitions = [
            TopicPartition(topic, index)
            for topic, count in counts.items()
            for index in range(count)
            if self._partition in (None, index)
        ]
        if self._partition is not None and len(partitions) < len(counts):
            short = min(counts, key=lambda topic: counts[topic])
            raise TopicError(
                f"topic {short} has {counts[short]} partitions, number {self._partition} is needed; "
                "add partitions to it, or use another prefix"
            )
        if not isinstance(self._start, str):
            for name in self._start.keys() - {self._name(tp) for tp in partitions}:
                if name.rpartition("/")[0] in self._topics:
                    raise ValueError(f"{name}: no such partition to start from")
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=16 << 20,
            fetch_max_wait_ms=self._wait_ms,
        )
        try:
            await asyncio.wait_for(consumer.start(), START_S)
            consumer.assign(partitions)
            self._positions = await self._seek(consumer, partitions)
        except (KafkaError, TimeoutError, OSError) as error:
            await close(consumer, "the reader")
            raise Unavailable(
                f"the log at {self._kafka} cannot be read: {error or type(error).__name__}"
            ) from error
        self._consumer = consumer

    async def stop(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        for cursor in self._cursors.values():
            await cursor.close()
        self._cursors.clear()
        if consumer is not None:
            await close(consumer, "the reader")

    async def poll(self, timeout_s: float, max_records: int = 500) -> list[Record]:
        """The next records, in order within each partition; empty when none came within `timeout_s`.

        Unreadable records move the position and are left out, so it may also be empty before the timeout.

        Raises:
            OffsetLost: a position was deleted by retention, or lies beyond the end.
            Unavailable: the broker fails, or a dead letter is not acknowledged.
        """
        try:
            batches = await self._consumer.getmany(
                timeout_ms=max(0, int(timeout_s * 1000)), max_records=max_records
            )
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            raise OffsetLost(
                f"the log does not hold the offset to go on from (retention?): {error}"
            ) from error
        except KafkaError as error:
            raise Unavailable(
                f"the log at {self._kafka} cannot be read: {type(error).__name__}: {error}"
            ) from error
        records: list[Record] = []
        for tp, batch in batches.items():
            for raw in batch:
                record = await self._read(raw)
                self._positions[tp] = raw.offset + 1
                if record is not None:
                    records.append(record)
        return records

    def positions(self) -> dict[str, int]:
        """`topic/partition` -> offset after the last record that `poll` returned or left out."""
        return {self._name(tp): offset for tp, offset in self._positions.items()}

    async def end_offsets(self) -> dict[str, int]:
        """`topic/partition` -> offset the next record written will have.

        Raises:
            Unavailable: the broker fails.
        """
        try:
            ends = await asyncio.wait_for(self._consumer.end_offsets(list(self._positions)), START_S)
        except (KafkaError, TimeoutError) as error:
            raise Unavailable(f"the ends of the log are unknown: {error or type(error).__name__}") from error
        return {self._name(tp): int(offset) for tp, offset in ends.items()}

    async def caught_up(self) -> bool:
        """Whether everything written before this call has been returned, by position: gaps and control records count as read."""
        ends = await self.end_offsets()
        for tp in self._positions:
            if max(self._positions[tp], await self._consumer.position(tp)) < ends[self._name(tp)]:
                return False
        return True

    async def read_range(
        self,
        topic: str,
        partition: int,
        first: int,
        next: int,  # noqa: A002 (pairs with first)
        *,
        deadline_s: float = 60.0,
    ) -> list[Record]:
        """Records with offsets in [first, next); unreadable ones are left out, silently, for `poll` has reported them.

        Does not touch the reader's positions. Consecutive ranges of a partition are read ahead.

        Raises:
            OffsetLost: retention has deleted `first`, or the log ends before `next`.
            Unavailable: the broker fails, or the deadline passes.
        """
        tp = TopicPartition(self._prefix + topic, partition)
        if tp not in self._cursors:
            self._cursors[tp] = Cursor(self._kafka, tp)
        records: list[Record] = []
        for raw in await self._cursors[tp].read(first, next, deadline_s=deadline_s):
            try:
                records.append(unpack(raw, self._prefix))
            except DecodeError:
                continue
        return records

    async def _seek(
        self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        chosen = dict(self._start) if not isinstance(self._start, str) else {}
        if not partitions:
            return {}
        begins = await asyncio.wait_for(consumer.beginning_offsets(partitions), START_S)
        positions = {tp: int(offset) for tp, offset in begins.items()}
        self.beginnings = {self._name(tp): offset for tp, offset in positions.items()}
        if self._start == "latest":
            ends = await asyncio.wait_for(consumer.end_offsets(partitions), START_S)
            positions = {tp: int(offset) for tp, offset in ends.items()}
        for tp in partitions:
            positions[tp] = chosen.get(self._name(tp), positions[tp])
            consumer.seek(tp, positions[tp])
        return positions

    async def _read(self, raw: RawRecord) -> Record | None:
        self.stats["records"] += 1
        try:
            return unpack(raw, self._prefix)
        except DecodeError as error:
            self.stats["unknown"] += isinstance(error, UnknownEvent)
            if self._producer is not None and await bury(self._producer, raw, error, prefix=self._prefix):
                self.stats["dead_letters"] += 1
            else:
                self.stats["skipped"] += 1
            return None

    def _name(self, tp: TopicPartition) -> str:
        return f"{tp.topic.removeprefix(self._prefix)}/{tp.partition}"
