"""A log whose topics are missing, too small or made anew, a broker whose disk is full; snapshots beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from schemas.tasks import Task, TaskSubmitted
from schemas.topics import all_topics
from services.runtime import topics
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.runtime.topics import TopicError
from services.scheduler.app import check
from services.scheduler.bench.recovery import Still
from services.scheduler.cellar import store_of
from services.scheduler.durable import Durable
from services.scheduler.projection import Projection
from tests.integration.scheduler.faulty import (
    Bench,
    deleted,
    own_redis,
    play,
    written,
)
from tests.integration.scheduler.test_recovery import TABLE, process_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["own_redis"]

pytestmark = pytest.mark.integration


def test_a_topic_that_was_made_anew_is_refused_in_one_line(
    kafka: str, prefix: str, tmp_path: Path, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(bench: Bench) -> None:
        recovery = await bench.recovered()
        await written(Projection(recovery.state, bench.store, pause_s=0.0), recovery.position)
        async with topics.admin(kafka) as client:
            await deleted(client, prefix + "tasks")
        await topics.create(kafka, prefix)
        with pytest.raises(Unavailable, match=r"tasks/\d+ .*the log holds offsets \[0, 0\) only"):
            await bench.recovered()
        assert any("was the topic made anew?" in line for line in caplog.messages)

    play(kafka, own_redis.url, prefix, tmp_path, scene)


def test_a_shard_keeps_as_many_snapshots_as_it_is_told_and_starts_from_them(
    kafka: str, prefix: str, tmp_path: Path, own_redis: RedisServer
) -> None:
    async def scene(bench: Bench) -> None:
        first = await bench.recovered()
        projection = Projection(first.state, bench.store)
        turns: Any = Still(first.state, first.position)
        durable = Durable(bench.blobs, bench.producer, TABLE, projection, turns)
        for _ in range(4):
            await durable.write()
        own = store_of(bench.blobs, prefix, 0)
        each = len(own.listed()) // 4
        assert await durable.tidy(2, kafka) == 0, "nothing young goes"
        for path in (tmp_path / "blobs" / "scheduler").rglob("*"):
            if path.is_file():
                os.utime(path, (1.0, 1.0))
        assert await durable.tidy(2, kafka) == 2 * each
        assert await durable.tidy(2, kafka) == 0
        again = await bench.recovered()
        assert again.came_from == "a snapshot"
        assert again.folded == 1, "what came after it: the claim of this one"

    play(kafka, own_redis.url, prefix, tmp_path, scene)


def test_a_scheduler_refuses_a_topic_that_is_missing_or_too_small(
    kafka: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        process = process_of(kafka, redis_url, prefix, tmp_path)
        with pytest.raises(TopicError, match="does not exist; make it with `temper topics create`"):
            await check(process, 1)
        declared = {topic.name: topic for topic in all_topics()}
        async with topics.admin(kafka) as client:
            small = topics._new(prefix + "tasks", declared["tasks"], 1)
            small.num_partitions = declared["tasks"].partitions - 1
            await client.create_topics([small])
        with pytest.raises(TopicError, match=r"tasks has \d+ partitions, \d+ are declared"):
            await topics.create(kafka, prefix)
        with pytest.raises(TopicError, match=r"tasks has \d+ partitions, \d+ are declared"):
            await check(process, 1)

    asyncio.run(scenario())


def test_a_scheduler_without_a_place_for_dead_letters_does_not_begin(
    kafka: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """The first record that cannot be read would otherwise end it, at each start again."""

    async def scenario() -> None:
        process = process_of(kafka, redis_url, prefix, tmp_path)
        await topics.create(kafka, prefix)
        await check(process, 1)
        async with topics.admin(kafka) as client:
            await deleted(client, prefix + "tasks.dlq")
        with pytest.raises(
            TopicError, match=r"tasks\.dlq does not exist; make it with `temper topics create`"
        ):
            await check(process, 1)

    asyncio.run(scenario())


def test_a_broker_whose_disk_is_full_refuses_in_one_line_and_has_all_it_acknowledged(
    prefix: str, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
        timeout=20,
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk can be mounted by root only")
    server = KafkaServer.start(disk)

    def event(name: str) -> Outgoing:
        task = Task(id=name, domain="d", prompt=os.urandom(100_000).hex())
        return Outgoing("tasks", TaskSubmitted(task=task), "d", name)

    async def until_refused(producer: Producer) -> tuple[list[str], str]:
        acknowledged: list[str] = []
        while len(acknowledged) < 2000:
            name = f"e{len(acknowledged)}"
            try:
                await producer.emit(event(name), deadline_s=10.0)
            except Unavailable as error:
                return acknowledged, str(error)
            acknowledged.append(name)
        raise AssertionError("the disk took more than it has")

    async def scenario() -> None:
        nonlocal server
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(40 << 20))
        await topics.create(server.bootstrap, prefix)
        producer = Producer(server.bootstrap, prefix, "t")
        await producer.start()
        began = time.monotonic()
        acknowledged, said = await until_refused(producer)
        assert acknowledged
        assert "tasks" in said
        assert "\n" not in said
        assert time.monotonic() - began < 120.0
        await producer.stop()
        await asyncio.to_thread(server.stop)
        ballast.unlink()
        server = await asyncio.to_thread(KafkaServer.start, disk)
        producer = Producer(server.bootstrap, prefix, "t")
        await producer.start()
        await producer.emit(event("after"))
        await producer.stop()
        reader = LogReader(server.bootstrap, prefix, ["tasks"])
        await reader.start()
        found: set[str] = set()
        async with asyncio.timeout(60):
            while not await reader.caught_up():
                found |= {record.envelope.id for record in await reader.poll(0.25)}
        await reader.stop()
        assert {*acknowledged, "after"} <= found

    try:
        asyncio.run(scenario())
    finally:
        server.stop()
        subprocess.run(["umount", "-l", str(disk)], check=False, timeout=20)
