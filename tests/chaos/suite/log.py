"""Everything on the log, as it lies there. Invariant: read by position, with nothing left out but what cannot be decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from schemas.topics import all_topics
from services.runtime.reader import LogReader
from services.runtime.wire import Record

READ_S = 120.0


class Log(msgspec.Struct, kw_only=True):
    """Records by topic and partition, in order."""

    parts: dict[tuple[str, int], list[Record]] = {}
    ends: dict[tuple[str, int], int] = {}
    """Offset after the last record, undecodable ones included."""
    unreadable: int = 0

    def of(self, topic: str) -> list[Record]:
        """Records of a topic, partition by partition."""
        return [
            record for (name, _), records in sorted(self.parts.items()) if name == topic for record in records
        ]

    def holes(self, topic: str) -> int:
        """Offsets of a topic, up to its ends, at which nothing lies any more: what compaction has removed."""
        found = 0
        for (name, partition), end in self.ends.items():
            if name == topic:
                found += end - len(self.parts.get((name, partition), []))
        return found

    def between(self, topic: str, partition: int, first: int, after: int) -> list[Record]:
        """Records of [first, after)."""
        records = self.parts.get((topic, partition), [])
        low = _at(records, first)
        return records[low : _at(records, after)]


def _at(records: list[Record], offset: int) -> int:
    low, high = 0, len(records)
    while low < high:
        middle = (low + high) // 2
        if records[middle].offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


async def read(kafka: str, prefix: str, *, shards: int = 1, pools: Iterable[str] = ("standard",)) -> Log:
    """All that an installation has written.

    Raises:
        Unavailable: the broker fails.
        TimeoutError: the end is not reached in time.
    """
    names = [topic.name for topic in all_topics(tuple(pools), shards) if not topic.name.endswith(".dlq")]
    reader = LogReader(kafka, prefix, names)
    log = Log()
    await reader.start()
    try:
        async with asyncio.timeout(READ_S):
            while not await reader.caught_up():
                for record in await reader.poll(0.5, 5000):
                    log.parts.setdefault((record.topic, record.partition), []).append(record)
        for name, offset in reader.positions().items():
            topic, _, partition = name.rpartition("/")
            log.ends[topic, int(partition)] = offset
        log.unreadable = int(reader.stats["skipped"])
    finally:
        await reader.stop()
    return log
