"""The log reader, the producer and the topics on the real broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import OutOfOrderSequenceNumber

from schemas.tasks import DomainPaused
from schemas.topics import REWARDS, TASKS, all_topics
from services.runtime import broker as wiring
from services.runtime import telemetry, topics
from services.runtime.consumer import LogReader, OffsetLost
from services.runtime.errors import Unavailable
from services.runtime.producer import LARGEST_RECORD, Outgoing, Producer, ProducerError
from services.runtime.wire import Record

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def producing(kafka: str, prefix: str) -> AsyncIterator[Producer]:
    await topics.create(kafka, prefix)
    producer = Producer(kafka, prefix, "tester")
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@contextlib.asynccontextmanager
async def reading(kafka: str, prefix: str, names: list[str], **options: Any) -> AsyncIterator[LogReader]:
    reader = LogReader(kafka, prefix, names, **options)
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


def event(index: int) -> DomainPaused:
    return DomainPaused(domain="d", reason=str(index))


def go(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(bounded())


async def drain(reader: LogReader) -> list[Record]:
    found: list[Record] = []
    async with asyncio.timeout(20):
        while not await reader.caught_up():
            found += await reader.poll(0.3)
    return found + await reader.poll(0.0)


async def poll_for(reader: LogReader, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            await reader.poll(0.5)


def reasons(records: list[Record]) -> list[int]:
    return [int(record.event.reason) for record in records if isinstance(record.event, DomainPaused)]


def test_topics_are_made_once_with_their_settings(kafka: str, prefix: str) -> None:
    async def test() -> None:
        await topics.create(kafka, prefix, ("standard",))
        await topics.create(kafka, prefix, ("standard", "fast"))
        declared = {prefix + topic.name: topic.partitions for topic in all_topics(("standard", "fast"))}
        assert await topics.partition_counts(kafka, declared) == declared

    go(test)


def test_topic_with_fewer_partitions_is_refused(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with topics.admin(kafka) as client:
            await client.create_topics([NewTopic(prefix + "tasks", num_partitions=2, replication_factor=1)])
        with pytest.raises(topics.TopicError, match=r"tasks has 2 partitions, 6 are declared"):
            await topics.create(kafka, prefix)

    go(test)


def test_no_broker_is_one_line() -> None:
    async def test() -> None:
        for attempt in (topics.create("127.0.0.1:1", ""), Producer("127.0.0.1:1", "", "t").start()):
            with pytest.raises(Unavailable, match="TEMPER_KAFKA"):
                await attempt

    go(test)


def test_order_is_kept_per_key_and_positions_lead_back(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await producer.emit(
                *(Outgoing(topic="tasks", event=event(i), key=f"k{i % 5}") for i in range(200))
            )
            assert producer.sent == 200
            async with reading(kafka, prefix, ["tasks", "rewards"]) as reader:
                records = await drain(reader)
                assert sorted(reasons(records)) == list(range(200))
                for key in range(5):
                    mine = [record for record in records if record.key == f"k{key}"]
                    assert reasons(mine) == list(range(key, 200, 5))
                positions = reader.positions()
                assert len(positions) == TASKS.partitions + REWARDS.partitions
                assert positions == await reader.end_offsets()
            await producer.emit(Outgoing(topic="tasks", event=event(200), key="k0"))
            async with reading(kafka, prefix, ["tasks", "rewards"], start=positions) as reader:
                assert reasons(await drain(reader)) == [200]
            async with reading(kafka, prefix, ["tasks"], start="latest") as reader:
                assert await reader.caught_up()
                await producer.emit(Outgoing(topic="tasks", event=event(201), key="k0"))
                assert not await reader.caught_up()
                assert reasons(await drain(reader)) == [201]

    go(test)


def test_ranges_are_exact_and_leave_the_positions_alone(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await producer.emit(*(Outgoing(topic="journal", event=event(i), key="k") for i in range(50)))
            await producer.send_raw("journal", b"\xff", b"k", [])
            await producer.emit(*(Outgoing(topic="journal", event=event(i), key="k") for i in range(51, 60)))
            async with reading(kafka, prefix, ["journal"]) as reader:
                before = reader.positions()
                for first, last in ((0, 10), (10, 25), (25, 25), (5, 7), (7, 60), (59, 60)):
                    found = await reader.read_range("journal", 0, first, last)
                    assert [record.offset for record in found] == [i for i in range(first, last) if i != 50]
                assert reader.positions() == before
                with pytest.raises(OffsetLost, match=r"holds offsets \[0, 60\) only"):
                    await reader.read_range("journal", 0, 55, 61)

    go(test)


def test_gaps_of_control_records_end_by_position(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            client = AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=prefix + "t")
            await client.start()
            try:
                await producer.emit(Outgoing(topic="journal", event=event(0), key="k"))
                async with client.transaction():
                    await client.send_and_wait(prefix + "journal", b"\xff", b"k")
            finally:
                await client.stop()
            async with reading(kafka, prefix, ["journal"]) as reader:
                async with asyncio.timeout(
                    10
                ):  # The commit marker is written a little after the commit is answered.
                    while (await reader.end_offsets())["journal/0"] < 3:  # noqa: ASYNC110 (no event)
                        await asyncio.sleep(0.05)
                assert reasons(await drain(reader)) == [0]
                assert reasons(await reader.read_range("journal", 0, 0, 3, deadline_s=10)) == [0]
                await producer.emit(Outgoing(topic="journal", event=event(1), key="k"))
                assert reasons(await reader.read_range("journal", 0, 3, 4, deadline_s=10)) == [1]
                assert reasons(await drain(reader)) == [1]

    go(test)


def test_owner_writes_dead_letters_and_goes_on(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await producer.send_raw("journal", b"\xff\xff", b"k", [])
            await producer.emit(Outgoing(topic="journal", event=event(1), key="k"))
            async with reading(kafka, prefix, ["journal"], producer=producer) as reader:
                assert reasons(await drain(reader)) == [1]
                assert reader.stats["dead_letters"] == 1
            assert await topics.partition_counts(kafka, [prefix + "journal.dlq"]) == {
                prefix + "journal.dlq": 1
            }
            async with reading(kafka, prefix, ["journal.dlq"]) as letters:
                assert (await letters.end_offsets())["journal.dlq/0"] == 1

    go(test)


def test_lost_offset_is_loud(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with (
            producing(kafka, prefix) as producer,
            reading(kafka, prefix, ["journal"], start={"journal/0": 1000}) as reader,
        ):
            await producer.emit(Outgoing(topic="journal", event=event(1), key="k"))
            with pytest.raises(OffsetLost):
                await poll_for(reader, 20)
        with pytest.raises(ValueError, match="no such partition"):
            await LogReader(kafka, prefix, ["journal"], start={"journal/7": 0}).start()

    go(test)


def test_trace_context_is_in_envelope_and_headers(kafka: str, prefix: str) -> None:
    async def test() -> None:
        telemetry_parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with producing(kafka, prefix) as producer, reading(kafka, prefix, ["tasks"]) as reader:
            await producer.emit(
                Outgoing(topic="tasks", event=event(1), key="k", traceparent=telemetry_parent)
            )
            with telemetry.span("submit", parent=telemetry_parent) as span:
                await producer.emit(Outgoing(topic="tasks", event=event(2), key="k"))
            first, second = await drain(reader)
            assert first.envelope.traceparent == telemetry_parent
            assert second.envelope.traceparent == span.traceparent

    go(test)


def test_bad_sends_are_one_line(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            with pytest.raises(ProducerError, match="too large"):
                await producer.send_raw("tasks", b"x" * (LARGEST_RECORD + 1), b"k", [])
            with pytest.raises(ProducerError, match="tasks"):
                await producer.send_raw("tasks", os.urandom(4 << 20), b"k", [])
            begun = time.monotonic()
            with pytest.raises(ProducerError, match="absent"):
                await producer.send_raw("absent", b"x", b"k", [], deadline_s=1.0)
            assert time.monotonic() - begun < 5
            await producer.emit(Outgoing(topic="tasks", event=event(1), key="k"))

    go(test)


def test_broken_client_is_replaced_once_and_nothing_is_lost(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            broken = producer._client

            async def refuse(*_: Any, **__: Any) -> None:
                raise OutOfOrderSequenceNumber

            assert broken is not None
            broken.send = refuse
            await asyncio.gather(
                *(producer.emit(Outgoing(topic="tasks", event=event(i), key="k")) for i in range(5))
            )
            assert producer.rebuilt == 1
            async with reading(kafka, prefix, ["tasks"]) as reader:
                assert sorted(reasons(await drain(reader))) == [0, 1, 2, 3, 4]

    go(test)


def test_faststream_observer_on_the_real_broker(kafka: str, prefix: str) -> None:
    async def test() -> None:
        seen: list[Record] = []
        arrived = asyncio.Event()

        async def watch(record: Record) -> None:
            seen.append(record)
            if len(seen) == 2:
                arrived.set()

        async with producing(kafka, prefix) as producer:
            await producer.emit(Outgoing(topic="checkpoints", event=event(0), key="run"))
            await producer.send_raw("checkpoints", b"\xff", b"run", [])
            broker = wiring.connect(kafka, prefix, "observer")
            wiring.observe(broker, "checkpoints", watch, prefix=prefix)
            await broker.start()
            try:
                await producer.emit(Outgoing(topic="checkpoints", event=event(1), key="run"))
                await asyncio.wait_for(arrived.wait(), 20)
            finally:
                await asyncio.wait_for(broker.stop(), 20)
        assert reasons(seen) == [0, 1]

    go(test)
