"""Ranges of one partition. Invariant: a range ends by position, so gaps and control records inside it never make it wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from services.runtime.closing import close
from services.runtime.errors import Unavailable
from services.runtime.wire import RawRecord

START_S = 30.0


class OffsetLost(Unavailable):
    """The log does not hold the offset that was asked for."""


class Cursor:
    """Reads ranges of one partition and keeps what it read ahead for the range that follows."""

    def __init__(self, kafka: str, tp: TopicPartition) -> None:
        self._kafka = kafka
        self._tp = tp
        self._consumer: Any = None
        self._ahead: deque[RawRecord] = deque()
        self._at = -1
        """Everything from here to the consumer's position is in `_ahead`."""

    async def read(self, first: int, next: int, *, deadline_s: float) -> list[RawRecord]:  # noqa: A002
        """Raw records with offsets in [first, next).

        Raises:
            OffsetLost: `first` is deleted, or `next` is beyond the end.
            Unavailable: the broker fails, or the deadline passes.
        """
        if next <= first:
            return []
        where = f"{self._tp.topic}/{self._tp.partition} [{first}, {next})"
        ends = time.monotonic() + deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                if self._consumer is None:
                    await self._connect()
                if first != self._at:
                    await self._move(first, next, where)
                found: list[RawRecord] = []
                while not self._collect(found, next):
                    position = await self._consumer.position(self._tp)
                    if position >= next:
                        break
                    wait_s = max(0.0, min(0.25, ends - time.monotonic()))
                    batches = await self._consumer.getmany(
                        self._tp, timeout_ms=int(wait_s * 1000), max_records=1000
                    )
                    self._ahead.extend(batches.get(self._tp, ()))
        except TimeoutError as error:
            raise Unavailable(f"{where}: not read within {deadline_s:.0f} s") from error
        except KafkaError as error:
            raise Unavailable(f"{where}: cannot be read: {type(error).__name__}: {error}") from error
        self._at = next
        return found

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        self._at = -1
        self._ahead.clear()
        if consumer is not None:
            await close(consumer, "the cursor")

    def _collect(self, found: list[RawRecord], next: int) -> bool:  # noqa: A002
        """Move what lies below `next` into `found`; whether a record at or beyond `next` was seen."""
        while self._ahead and self._ahead[0].offset < next:
            found.append(self._ahead.popleft())
        return bool(self._ahead) or (bool(found) and found[-1].offset == next - 1)

    async def _move(self, first: int, next: int, where: str) -> None:  # noqa: A002
        beginning = (await self._consumer.beginning_offsets([self._tp]))[self._tp]
        end = (await self._consumer.end_offsets([self._tp]))[self._tp]
        if first < beginning or next > end:
            raise OffsetLost(f"{where}: the log holds offsets [{beginning}, {end}) only")
        self._ahead.clear()
        self._consumer.seek(self._tp, first)

    async def _connect(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=16 << 20,
            fetch_max_wait_ms=100,
        )
        self._consumer = consumer  # So that `close` ends it even if it does not get to start.
        await asyncio.wait_for(consumer.start(), START_S)
        consumer.assign([self._tp])
        self._at = -1
