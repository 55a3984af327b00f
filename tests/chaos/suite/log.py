"""Everything on the log, as it lies there. Invariant: read by position, with nothing left out but what cannot be decoded."""

from __future__ import annotations

import asyncio

import msgspec

from schemas.topics import POOLS, all_topics
from services.runtime import topics
from services.runtime.reader import LogReader
from services.runtime.wire import Record

READ_S = 120.0
WORK = "assignments."


class Log(msgspec.Struct, kw_only=True):
    """Records by topic and partition, in order."""

    parts: dict[tuple[str, int], list[Record]] = {}
    ends: dict[tuple[str, int], int] = {}
    """Offset after the last record, undecodable ones included."""
    unreadable: int = 0

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of all sampler pools that have a topic, also of those in which nothing lies."""
        names = {topic for topic, _ in self.ends} | {topic for topic, _ in self.parts}
        return tuple(sorted(name.removeprefix(WORK) for name in names if name.startswith(WORK)))

    def work(self) -> list[Record]:
        """Records of the assignments of every pool."""
        return [record for pool in self.pools for record in self.of(WORK + pool)]

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


async def pools_of(kafka: str, prefix: str) -> tuple[str, ...]:
    """Pools that the broker has a topic of work for, whatever anybody has declared.

    Raises:
        Unavailable: the broker fails.
    """
    start = prefix + WORK
    async with topics.admin(kafka) as client:
        names = await client.list_topics()
    return tuple(
        sorted({n.removeprefix(start) for n in names if n.startswith(start) and not n.endswith(".dlq")})
    )


async def read(kafka: str, prefix: str, *, shards: int = 1) -> Log:
    """All that an installation has written, the work of every pool included.

    Raises:
        Unavailable: the broker fails.
        TimeoutError: the end is not reached in time.
        AssertionError: a pool of the default installation has no topic.
    """
    pools = await pools_of(kafka, prefix)
    if missing := set(POOLS) - set(pools):
        raise AssertionError(f"no topic for the work of pool {min(missing)}")
    names = [topic.name for topic in all_topics(pools, shards) if not topic.name.endswith(".dlq")]
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
