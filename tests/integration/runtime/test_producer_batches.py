"""Many records in one call, on the real broker: each where its key belongs, in order, once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import OutOfOrderSequenceNumber

from schemas.tasks import DomainPaused
from services.runtime import topics
from services.runtime.batches import FEW
from services.runtime.producer import LARGEST_RECORD, Outgoing, Producer, ProducerError
from services.runtime.reader import LogReader

pytestmark = pytest.mark.integration


def outgoing(number: int, keys: int, topic: str = "tasks", size: int = 10) -> Outgoing:
    event = DomainPaused(domain="d", reason="x" * size)
    return Outgoing(topic=topic, event=event, key=f"key-{number % keys}", id=str(number))


async def sent_and_read(kafka: str, prefix: str, batches: list[list[Outgoing]]) -> None:
    await topics.create(kafka, prefix)
    producer = Producer(kafka, prefix, "tester")
    await producer.start()
    reader = LogReader(kafka, prefix, ["tasks", "rewards"])
    plain = AIOKafkaProducer(bootstrap_servers=kafka)
    await plain.start()
    try:
        await asyncio.gather(*(producer.emit(*batch) for batch in batches))
        await reader.start()
        read = []
        async with asyncio.timeout(30):
            while not await reader.caught_up():
                read += await reader.poll(0.2, 5000)
        wanted = [item for batch in batches for item in batch]
        assert sorted(record.envelope.id for record in read) == sorted(item.id for item in wanted)
        assert producer.sent == len(wanted)
        order: dict[str, list[int]] = defaultdict(list)
        for record in sorted(read, key=lambda found: found.offset):
            order[record.topic + record.key].append(int(record.envelope.id))
            place = await plain.send(prefix + record.topic, b"", record.key.encode())
            assert (await place).partition == record.partition
        if len(batches) == 1:
            assert all(numbers == sorted(numbers) for numbers in order.values())
    finally:
        await plain.stop()
        await reader.stop()
        await producer.stop()


def test_a_large_call_puts_each_record_where_its_key_belongs_in_order(kafka: str, prefix: str) -> None:
    batch = [
        outgoing(number, 23, ("tasks", "rewards")[number % 2], size=(50_000 if number % 50 == 0 else 900))
        for number in range(600)
    ]
    asyncio.run(sent_and_read(kafka, prefix, [batch]))


def test_calls_at_once_do_not_lose_each_other(kafka: str, prefix: str) -> None:
    batches = [[outgoing(100 * call + n, 7) for n in range(3 + 9 * call)] for call in range(8)]
    asyncio.run(sent_and_read(kafka, prefix, batches))


def test_a_large_call_fails_with_the_line_that_a_small_one_has(kafka: str, prefix: str) -> None:
    async def run() -> None:
        await topics.create(kafka, prefix)
        producer = Producer(kafka, prefix, "tester")
        await producer.start()
        try:
            many = [outgoing(number, 5) for number in range(2 * FEW)]
            with pytest.raises(ProducerError, match="absent"):
                await producer.emit(*many, outgoing(0, 5, topic="absent"), deadline_s=2.0)
            with pytest.raises(ProducerError, match="too large"):
                await producer.emit(*many, outgoing(0, 5, size=LARGEST_RECORD + 1))
            await producer.emit(*many)
        finally:
            await producer.stop()

    asyncio.run(run())


def test_a_broken_client_is_replaced_and_all_records_of_its_batches_are_sent_again(
    kafka: str, prefix: str
) -> None:
    async def run() -> None:
        await topics.create(kafka, prefix)
        producer = Producer(kafka, prefix, "tester")
        await producer.start()

        async def refuse(*_: Any, **__: Any) -> None:
            raise OutOfOrderSequenceNumber

        broken = producer._client
        assert broken is not None
        broken.send_batch = refuse
        try:
            await producer.emit(*(outgoing(number, 5) for number in range(40)))
            assert (producer.rebuilt, producer.sent) == (1, 40)
            reader = LogReader(kafka, prefix, ["tasks"])
            await reader.start()
            read: list[str] = []
            async with asyncio.timeout(20):
                while not await reader.caught_up():
                    read += [record.envelope.id for record in await reader.poll(0.2, 500)]
            await reader.stop()
            assert sorted(read, key=int) == [str(number) for number in range(40)]
        finally:
            await producer.stop()

    asyncio.run(run())
