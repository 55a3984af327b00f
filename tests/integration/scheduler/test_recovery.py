"""Recovery with Redis lost, retention, and Redis servers that are full, read-only or emptied, on the real servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import redis as redis_client
from aiokafka.structs import TopicPartition

from schemas.run import RunConfig
from schemas.tasks import Task, TaskSubmitted
from schemas.topics import TASKS
from services.runtime import retention, topics
from services.runtime.blobs import Blobs
from services.runtime.producer import Outgoing, Producer
from services.runtime.settings import Process
from services.scheduler.bench.recovery import Still, _write
from services.scheduler.durable import Durable
from services.scheduler.invariants import invariant
from services.scheduler.journal import Gap
from services.scheduler.policies import Policies, Policy
from services.scheduler.projection import Projection
from services.scheduler.retention import Retention, needed
from services.scheduler.settings import redis_key
from services.scheduler.shard import recover
from services.scheduler.snapshot import snapshot
from services.scheduler.state import State
from services.scheduler.store import Store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
TABLE = Policies(domains={f"d{n}": Policy() for n in range(300)}, run="r", ready_cap=100_000)


def process_of(kafka: str, redis_url: str, prefix: str, folder: Path, **scheduler: Any) -> Process:
    config = RunConfig(name="r")
    config = msgspec.structs.replace(config, scheduler=msgspec.structs.replace(config.scheduler, **scheduler))
    return Process(
        kafka=kafka,
        redis=redis_url,
        prefix=prefix,
        blobs=str(folder / "blobs"),
        run_dir=folder,
        config=config,
        worker="t",
        health_port=0,
    )


async def put(store: Store, fields: dict[str, bytes], journal: int) -> None:
    """Have Redis hold this."""
    await store.begin()
    await store.build(fields)
    await store.adopt({"meta": fields["meta"]}, epoch=0, seq=0, journal=journal)


@pytest.mark.parametrize("redis", ["lost", "of another version", "an old copy"])
def test_a_redis_that_is_of_no_use_needs_no_log_before_the_snapshot(
    kafka: str, redis_url: str, tmp_path: Path, redis: str
) -> None:
    async def scenario() -> None:
        prefix = f"{tmp_path.name}."
        await topics.create(kafka, prefix)
        process = process_of(kafka, redis_url, prefix, tmp_path, snapshots=1, log_days=0.0)
        producer = Producer(kafka, prefix, "t")
        await producer.start()
        blobs = Blobs(process.blobs)
        store = Store(redis_url, prefix)
        try:
            at = await _write(process, producer, 0, 4500, {}, 1)
            first = await recover(process, TABLE, store, producer, blobs)
            assert len(first.state.live) == 4500
            projection = Projection(first.state, store)
            turns: Any = Still(first.state, first.position)
            await Durable(blobs, producer, TABLE, projection, turns).write()
            before = snapshot(first.state)
            await first.stop()
            gone = await Retention(process, TABLE).once()
            if redis == "of another version":
                meta = msgspec.msgpack.decode(before["meta"]) | {"fold": 99}
                await put(store, {**before, "meta": msgspec.msgpack.encode(meta)}, first.position)
            elif redis == "an old copy":  # of a time of which the log holds nothing any more
                await put(store, snapshot(State()), 0)
            assert {name.partition("/")[0] for name in gone} == {"tasks", "journal"}
            again = await recover(process, TABLE, store, producer, blobs)
            assert again.came_from == "a snapshot"
            now = snapshot(again.state)
            assert {name: value for name, value in now.items() if name != "meta"} == {
                name: value for name, value in before.items() if name != "meta"
            }
            assert invariant(again.state) == []
            await again.stop()
            # Without the snapshot the log's beginning is missed, in one line.
            elsewhere = Blobs(str(tmp_path / "other"))
            with pytest.raises(Gap, match=r"begins at offset \d+, \d+ is needed"):
                await recover(process, TABLE, store, producer, elsewhere)
            assert at
        finally:
            await store.close()
            await producer.stop()

    asyncio.run(scenario())


def test_without_a_snapshot_of_every_shard_nothing_is_deleted(tmp_path: Path) -> None:
    assert needed([], 1, 1) == {}


def test_a_topic_with_a_time_limit_is_put_right_and_its_scheduler_refused(kafka: str, prefix: str) -> None:
    async def scenario() -> None:
        await topics.create(kafka, prefix)
        async with topics.admin(kafka) as client:
            from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

            limited = {"retention.ms": "1000000", "max.message.bytes": "1048576"}
            answer = await client.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, prefix + "tasks", limited)]
            )
            assert [entry[0] for part in answer for entry in part.resources] == [0]
            lines: list[str] = []
            async with asyncio.timeout(20):
                while not lines:  # the broker answers before its settings show it
                    lines = await retention.unguarded(client, {prefix + "tasks": TASKS})
            assert len(lines) == 1
            assert "temper topics create" in lines[0]
        await topics.create(kafka, prefix)
        async with topics.admin(kafka) as client:
            kept, found = "", {}
            async with asyncio.timeout(20):
                while kept != "-1":
                    found = await retention.settings(client, [prefix + "tasks"])
                    kept = found[prefix + "tasks"]["retention.ms"][0]
            assert found[prefix + "tasks"]["max.message.bytes"][0] == "1048576"
            assert await retention.trim(client, {TopicPartition(prefix + "tasks", 0): 0}) is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", ["full", "read-only", "emptied", "other type"])
def test_a_redis_that_refuses_is_one_line_and_is_completed_later(
    tmp_path: Path, kafka: str, prefix: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(url: str) -> None:
        await topics.create(kafka, prefix)
        producer = Producer(kafka, prefix, "t")
        await producer.start()
        process = process_of(kafka, url, prefix, tmp_path)
        store = Store(url, prefix)
        client = redis_client.Redis.from_url(url)
        try:
            event = TaskSubmitted(task=Task(id="t0", domain="d0", prompt="p"))
            await producer.emit(Outgoing("tasks", event, "d0"))
            await _write(process, producer, 1, 100, {}, 1)
            recovery = await recover(process, TABLE, store, producer, Blobs(process.blobs))
            projection = Projection(recovery.state, store, pause_s=0.0)

            async def bring_up() -> None:
                projection.offer(recovery.position)
                await projection.finish(recovery.position)

            await bring_up()
            assert not projection.dirty
            recovery.state.meta.seq += 1
            if fault == "full":
                client.config_set("maxmemory", "1")
                client.config_set("maxmemory-policy", "noeviction")
            elif fault == "read-only":
                client.replicaof("127.0.0.1", "1")
            elif fault == "emptied":
                client.flushall()
            else:
                client.delete(redis_key(prefix))
                client.set(redis_key(prefix), "x")
            for _ in range(3):
                await bring_up()
            refusals = [line for line in caplog.messages if "Redis does not take the state" in line]
            assert len(refusals) == (0 if fault == "emptied" else 1)
            if fault == "full":
                client.config_set("maxmemory", "0")
            elif fault == "read-only":
                client.replicaof("NO", "ONE")
            elif fault == "other type":
                client.delete(redis_key(prefix))
            for _ in range(3):
                await bring_up()
            fields = await store.load()
            expected = snapshot(recovery.state)
            assert {name: fields[name] for name in expected} == expected
            await recovery.stop()
        finally:
            client.close()
            await store.close()
            await producer.stop()

    import services.runtime.stack.redis as embedded

    server = embedded.RedisServer.start(tmp_path)
    try:
        asyncio.run(scenario(server.url))
    finally:
        server.stop()
