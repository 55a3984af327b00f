"""The dead-letter topics, for people. Invariant: replay sends the original bytes to the original topic; nothing is deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from schemas.topics import all_topics, dead_letters
from services.console.connection import Connection
from services.console.errors import WRONG_USE, ConsoleError
from services.runtime.producer import Producer
from services.runtime.topics import partition_counts

DEADLINE_S = 60.0
SHOWN_BYTES = 400


@asynccontextmanager
async def _consumer(link: Connection) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=link.kafka, enable_auto_commit=False, max_partition_fetch_bytes=17_000_000
    )
    try:
        try:
            await asyncio.wait_for(consumer.start(), DEADLINE_S)
        except (KafkaError, TimeoutError) as error:
            raise ConsoleError(
                f"the broker at {link.kafka} does not answer: {type(error).__name__}"
            ) from error
        yield consumer
    finally:
        async with asyncio.timeout(10):
            await consumer.stop()


async def _partitions(link: Connection, topic: str) -> list[TopicPartition]:
    known = {source.name for source in all_topics() if source.dead_letters}
    if topic not in known:
        raise ConsoleError(
            f"{topic!r} has no dead letters; sources are {', '.join(sorted(known))}", WRONG_USE
        )
    name = link.prefix + dead_letters(topic).name
    count = (await partition_counts(link.kafka, [name]))[name]
    return [TopicPartition(name, partition) for partition in range(count)]


async def _records(link: Connection, topic: str) -> AsyncIterator[ConsumerRecord]:
    tps = await _partitions(link, topic)
    async with _consumer(link) as consumer:
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        ends = await consumer.end_offsets(tps)
        deadline = time.monotonic() + DEADLINE_S
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            if time.monotonic() > deadline:
                raise ConsoleError(f"{tps[0].topic} was not read to its end within {DEADLINE_S:.0f} s")
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    yield record


async def counts(link: Connection) -> dict[str, int]:
    """Dead letters by source topic."""
    rows = {}
    async with _consumer(link) as consumer:
        for topic in all_topics():
            if topic.dead_letters:
                tps = await _partitions(link, topic.name)
                first, end = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
                rows[topic.name] = sum(end[tp] - first[tp] for tp in tps)
    return rows


async def show(link: Connection, topic: str, offset: int | None) -> None:
    """Print the dead letters of a source topic, or one of them."""
    async for record in _records(link, topic):
        if offset is not None and record.offset != offset:
            continue
        print(f"offset {record.offset}, {len(record.value or b'')} bytes")
        for key, value in record.headers:
            print(f"  {key}: {value.decode(errors='replace')}")
        print(f"  {(record.value or b'')[:SHOWN_BYTES]!r}")


async def replay(link: Connection, topic: str, offset: int | None) -> int:
    """Send dead letters, or one of them, to their source topic again; returns how many."""
    producer = Producer(link.kafka, link.prefix, "console")
    await producer.start()
    sent = 0
    try:
        async for record in _records(link, topic):
            if offset is None or record.offset == offset:
                headers = [(key, value) for key, value in record.headers if not key.startswith("x-")]
                await producer.send_raw(topic, record.value, record.key, headers)
                sent += 1
    finally:
        await producer.stop()
    return sent
