"""The work consumer on the real broker: order, bounds, dead letters and what a killed worker leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.envelope import Envelope
from schemas.tasks import DomainPaused
from services.runtime import topics
from services.runtime.consumer import Done, LogReader, WorkConsumer
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.wire import Record

pytestmark = pytest.mark.integration
TOPIC = "rewards"


@contextlib.asynccontextmanager
async def producing(kafka: str, prefix: str) -> AsyncIterator[Producer]:
    await topics.create(kafka, prefix)
    producer = Producer(kafka, prefix, "tester")
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def write(producer: Producer, count: int, key: str = "one", topic: str = TOPIC) -> None:
    await producer.emit(
        *(
            Outgoing(topic=topic, event=DomainPaused(domain="d", reason=str(i)), key=key, id=f"{i}")
            for i in range(count)
        )
    )


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 (state without an event)
            await asyncio.sleep(0.01)


class Worker:
    """A consumer whose records the test finishes by hand."""

    def __init__(self, kafka: str, prefix: str, producer: Producer, **options: Any) -> None:
        self.consumer = WorkConsumer(
            kafka, prefix, [TOPIC], "workers", producer, **{"window": 100, "session_s": 2.0} | options
        )
        self.got: list[tuple[Record, Done]] = []
        self.stop = asyncio.Event()
        self.loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.consumer.start()
        self.loop = asyncio.create_task(self.consumer.run(self.take, self.stop))
        return self

    def take(self, record: Record, done: Done) -> None:
        self.got.append((record, done))

    def has(self, count: int) -> Callable[[], bool]:
        return lambda: len(self.got) == count

    @property
    def reasons(self) -> list[int]:
        return [int(record.event.reason) for record, _ in self.got if isinstance(record.event, DomainPaused)]

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        assert self.loop is not None
        await asyncio.wait_for(self.loop, 10)
        await self.consumer.stop()

    async def kill(self) -> None:
        """Vanish as after `kill -9`: no commit, no farewell to the group."""
        assert self.loop is not None
        self.loop.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.loop
        client = self.consumer._consumer
        self.consumer._consumer = self.consumer._mine.consumer = None
        self.consumer._mine.ledgers.clear()
        client._coordinator._maybe_leave_group = _nothing
        await client.stop()


async def _nothing() -> None:
    return None


async def committed(kafka: str, prefix: str) -> int:
    async with topics.admin(kafka) as client:
        stored = await client.list_consumer_group_offsets(prefix + "workers")
    return sum(int(entry.offset) for entry in stored.values() if entry.offset > 0)


def go(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(), 60)

    asyncio.run(bounded())


def test_out_of_order_completion_commits_the_contiguous_prefix(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await write(producer, 5)
            async with Worker(kafka, prefix, producer) as worker:
                await until(lambda: len(worker.got) == 5)
                for index in (4, 1, 0):
                    worker.got[index][1]()
                await until(lambda: list(worker.consumer.positions().values()) == [2])
                await asyncio.sleep(0.5)
                assert await committed(kafka, prefix) == 2
                worker.got[2][1]()
                worker.got[3][1]()
            assert await committed(kafka, prefix) == 5

    go(test)


def test_window_bounds_the_unfinished_records(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await write(producer, 40)
            async with Worker(kafka, prefix, producer, window=7) as worker:
                await until(lambda: len(worker.got) == 7)
                await asyncio.sleep(0.6)
                assert len(worker.got) == 7
                assert worker.consumer._consumer.paused()
                finished = 0
                while len(worker.got) < 40:
                    worker.got[finished][1]()
                    finished += 1
                    await until(lambda: len(worker.got) >= min(40, finished + 7))  # noqa: B023
                    assert worker.consumer.unfinished <= 7
                for _, done in worker.got:
                    done()
            assert worker.reasons == list(range(40))
            assert await committed(kafka, prefix) == 40

    go(test)


def test_killed_worker_leaves_its_records_and_their_count(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await write(producer, 4)
            seen: list[list[tuple[int, int]]] = []
            worker = Worker(kafka, prefix, producer)
            for _ in range(4):
                worker = await Worker(kafka, prefix, producer, redeliveries=3).__aenter__()
                # Record 0 is finished, record 1 kills the worker; 2 and 3 are innocent neighbours.
                await until(lambda: any(r.event.reason == "1" for r, _ in worker.got))  # type: ignore[attr-defined]  # noqa: B023
                seen.append([(r.offset, r.redelivered) for r, _ in worker.got])
                for record, done in worker.got:
                    if record.offset == 0:
                        done()
                if worker.got[0][0].redelivered < 3:
                    if worker.got[0][0].offset == 0:
                        await until(lambda: list(worker.consumer.positions().values()) == [1])  # noqa: B023
                        await asyncio.sleep(0.4)
                    await worker.kill()
            assert seen[0] == [(0, 0), (1, 0), (2, 0), (3, 0)]
            assert seen[1] == [(1, 1), (2, 1), (3, 1)]
            assert seen[2] == [(1, 2)], "the last try before the limit is made alone"
            assert seen[3] == [(1, 3)]
            worker.got[0][1]()
            await until(lambda: len(worker.got) == 2)
            assert (worker.got[1][0].offset, worker.got[1][0].redelivered) == (2, 2)
            worker.got[1][1]()
            await until(lambda: len(worker.got) == 3)
            worker.got[2][1]()
            await worker.__aexit__()
            assert await committed(kafka, prefix) == 4

    go(test)


def test_clean_stop_does_not_count_against_unfinished_records(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await write(producer, 2)
            for _ in range(5):
                async with Worker(kafka, prefix, producer) as worker:
                    await until(lambda: len(worker.got) == 2)
                    assert [record.redelivered for record, _ in worker.got] == [0, 0]

    go(test)


def test_rebalance_hands_partitions_over_and_ignores_late_work(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            for key in range(30):
                await write(producer, 1, key=f"k{key}")
            async with Worker(kafka, prefix, producer) as first:
                await until(lambda: len(first.got) == 30)
                async with Worker(kafka, prefix, producer) as second:
                    await until(lambda: len(first.got) + len(second.got) >= 60)
                    # What the first worker finishes of the old assignment is not counted twice.
                    for _, done in first.got[:30]:
                        done()
                    assert first.consumer.stats["ignored"] == 30
                    for _, done in [*first.got[30:], *second.got]:
                        done()
                    await until(lambda: first.consumer.unfinished + second.consumer.unfinished == 0)
            assert await committed(kafka, prefix) == 30

    go(test)


def test_undecodable_bytes_become_a_dead_letter(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await producer.send_raw(
                TOPIC, b"\xff\x00 not an event", b"\xfe key", [("traceparent", b"00-aa-bb-01")]
            )
            await producer.send_raw(TOPIC, None, b"tombstone", [])
            odd = msgspec.json.encode(
                Envelope(
                    id="i",
                    type="FromTheFuture",
                    key="k",
                    occurred_at=1.0,
                    producer="p",
                    data=msgspec.Raw(b"{}"),
                )
            )
            await producer.send_raw(TOPIC, odd, b"k", [("content-type", b"application/json; charset=utf-8")])
            await write(producer, 1)
            async with Worker(kafka, prefix, producer) as worker:
                await until(lambda: len(worker.got) == 1)
                worker.got[0][1]()
                await until(lambda: worker.consumer.stats["dead_letters"] == 3)
                assert worker.consumer.stats["unknown"] == 1
            assert await committed(kafka, prefix) == 4
            letters = await raw_records(kafka, prefix + TOPIC + ".dlq", 3)
            by_key = {letter.key: letter for letter in letters}
            letter = by_key[b"\xfe key"]
            assert letter.value == b"\xff\x00 not an event"
            headers = dict(letter.headers)
            assert headers["x-topic"] == TOPIC.encode()
            assert headers["x-service"] == b"tester"
            assert headers["traceparent"] == b"00-aa-bb-01"
            assert {"x-partition", "x-offset", "x-timestamp", "x-error"} <= headers.keys()
            assert by_key[b"tombstone"].value is None
            assert b"unknown event FromTheFuture" in dict(by_key[b"k"].headers)["x-error"]

    go(test)


def test_observer_skips_unknown_events(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            odd = msgspec.json.encode(
                Envelope(
                    id="i",
                    type="FromTheFuture",
                    key="k",
                    occurred_at=1.0,
                    producer="p",
                    data=msgspec.Raw(b"{}"),
                )
            )
            await producer.send_raw(TOPIC, odd, b"k", [])
            async with Worker(kafka, prefix, producer, owner=False) as worker:
                await until(lambda: worker.consumer.stats["unknown"] == 1)
            assert worker.consumer.stats["dead_letters"] == 0
            assert await committed(kafka, prefix) == 1

    go(test)


def test_failing_handler_ends_the_loop_and_keeps_the_record(kafka: str, prefix: str) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await write(producer, 1)
            consumer = WorkConsumer(kafka, prefix, [TOPIC], "workers", producer, window=4)
            await consumer.start()

            def handle(record: Record, done: Done) -> None:
                raise RuntimeError("broken handler")

            with pytest.raises(RuntimeError, match="broken handler"):
                await consumer.run(handle, asyncio.Event())
            await consumer.stop()
            assert await committed(kafka, prefix) == 0

    go(test)


def test_missing_topic_is_one_line(kafka: str, prefix: str) -> None:
    async def test() -> None:
        producer = Producer(kafka, prefix, "tester")
        with pytest.raises(Unavailable, match="topics create"):
            await WorkConsumer(kafka, prefix, [TOPIC], "workers", producer, window=4).start()
        with pytest.raises(Unavailable, match="topics create"):
            await LogReader(kafka, prefix, [TOPIC]).start()

    go(test)


async def raw_records(kafka: str, topic: str, count: int) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        found: list[Any] = []
        async with asyncio.timeout(20):
            while len(found) < count:
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(batch)
        return found
    finally:
        await consumer.stop()


def test_a_long_record_that_gets_on_is_no_suspect_and_costs_the_others_nothing(
    kafka: str, prefix: str
) -> None:
    async def test() -> None:
        async with producing(kafka, prefix) as producer:
            await write(producer, 1)
            for life in range(4):  # more than any record may cost that does not get on
                worker = await Worker(kafka, prefix, producer).__aenter__()
                await until(worker.has(1))
                record, _ = worker.got[0]
                assert (worker.reasons[0], record.redelivered) == (0, 0)
                await write(producer, 3)
                worker.consumer.progressed(record)
                await until(worker.has(4))
                for _, done in worker.got[1:]:
                    done()
                assert worker.consumer.stats["skipped"] == 3 * life
                await asyncio.sleep(0.5)  # to the next commit
                await worker.kill()
            async with Worker(kafka, prefix, producer) as last:
                await until(lambda: len(last.got) == 1 and last.consumer.stats["skipped"] == 12)
                last.got[0][1]()
            assert await committed(kafka, prefix) == 13

    go(test)
