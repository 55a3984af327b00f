"""Servers that are slow, stalled, of another log, or without a command, right or topic: real ones, a relay before them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_client

from schemas.tasks import Task, TaskSubmitted
from schemas.topics import all_topics
from services.runtime import topics
from services.runtime.blobs import Blobs
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.runtime.topics import TopicError
from services.scheduler.app import check
from services.scheduler.bench.recovery import Still, _write
from services.scheduler.cellar import store_of
from services.scheduler.durable import Durable
from services.scheduler.projection import Projection
from services.scheduler.settings import redis_key
from services.scheduler.shard import recover
from services.scheduler.snapshot import snapshot
from services.scheduler.store import Store
from tests.integration.scheduler.test_recovery import TABLE, process_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration
SHORT_S = 0.5
"""Deadline of a call to Redis here."""


class Relay:
    """Bytes between a port of its own and a server; they are held back while `open` is not set, or let through slowly."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.open = asyncio.Event()
        self.open.set()
        self.pause_s = 0.0
        """Before each byte that the server sends."""
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Relay]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        far, to = await asyncio.open_connection("127.0.0.1", self._to)
        for coroutine in (self._pass(near, to, slow=False), self._pass(far, out, slow=True)):
            task = asyncio.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, slow: bool) -> None:
        try:
            while data := await source.read(65536):
                await self.open.wait()
                pieces = [data[i : i + 1] for i in range(len(data))] if slow and self.pause_s else [data]
                for piece in pieces:
                    if len(pieces) > 1:
                        await asyncio.sleep(self.pause_s)
                    sink.write(piece)
                    await sink.drain()
        except ConnectionError:
            return
        finally:
            sink.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(tmp_path)
    try:
        yield server
    finally:
        server.stop()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


async def deleted(client: Any, name: str) -> None:
    """Delete a topic and wait until the broker no longer knows it."""
    await client.delete_topics([name])
    async with asyncio.timeout(30):
        while name in await client.list_topics():  # noqa: ASYNC110 (the broker has no event for it)
            await asyncio.sleep(0.1)


class Bench:
    """A log with 100 tasks, and what a scheduler of it writes to Redis."""

    def __init__(self, process: Any, store: Store, producer: Producer) -> None:
        self.process, self.store, self.producer = process, store, producer
        self.blobs = Blobs(process.blobs)

    async def recovered(self) -> Any:
        recovery = await recover(self.process, TABLE, self.store, self.producer, self.blobs)
        await recovery.stop()
        assert len(recovery.state.live) == 100
        return recovery


def play(
    kafka: str, url: str, prefix: str, folder: Path, scene: Callable[[Bench], Coroutine[Any, Any, None]]
) -> None:
    async def scenario() -> None:
        await topics.create(kafka, prefix)
        producer = Producer(kafka, prefix, "t")
        await producer.start()
        store = Store(url, prefix, timeout_s=SHORT_S, load_s=4 * SHORT_S)
        try:
            await _write(process_of(kafka, url, prefix, folder), producer, 0, 100, {}, 1)
            await scene(Bench(process_of(kafka, url, prefix, folder), store, producer))
        finally:
            await store.close()
            await producer.stop()

    asyncio.run(scenario())


async def written(projection: Projection, journal: int, times: int = 3) -> None:
    for _ in range(times):
        projection.offer(journal)
        await projection.finish(journal)


async def held(store: Store, expected: dict[str, bytes]) -> None:
    fields = await store.load()
    assert {name: fields[name] for name in expected} == expected


@pytest.mark.parametrize("how", ["stalled", "trickling"])
def test_a_redis_that_does_not_answer_in_time_costs_a_bounded_wait_and_one_line(
    kafka: str,
    prefix: str,
    tmp_path: Path,
    own_redis: RedisServer,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(bench: Bench) -> None:
        relay = Relay(port_of(own_redis.url))
        async with relay.running():
            store = Store(f"redis://127.0.0.1:{relay.port}/0", prefix, timeout_s=SHORT_S, load_s=4 * SHORT_S)
            bench.store = store
            first = await bench.recovered()
            await written(Projection(first.state, store, pause_s=0.0), first.position)
            if how == "stalled":
                relay.open.clear()
            else:
                relay.pause_s = SHORT_S / 4  # every byte comes in time, all of them do not
            began = time.monotonic()
            again = await bench.recovered()
            assert time.monotonic() - began < 20.0
            assert again.came_from == "the log"
            assert any("no answer within 0.5 s" in line for line in caplog.messages)
            projection = Projection(again.state, store, pause_s=0.0)
            await written(projection, again.position)
            assert projection.stats["redis_writes"] == 0
            assert sum("Redis does not take the state" in line for line in caplog.messages) == 1
            relay.pause_s = 0.0
            relay.open.set()
            await written(projection, again.position)
            assert not projection.dirty
            await held(store, snapshot(again.state))
            await store.close()

    play(kafka, own_redis.url, prefix, tmp_path, scene)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("-@scripting", "evalsha"),
        ("-@write", "rights"),
        ("-hscan", "rights"),
        ("resetkeys", "rights"),
    ],
)
def test_a_redis_whose_user_lacks_a_right_is_one_line_that_names_it(
    kafka: str,
    prefix: str,
    tmp_path: Path,
    own_redis: RedisServer,
    rule: str,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(bench: Bench) -> None:
        client: Any = redis_client.Redis.from_url(own_redis.url)
        client.execute_command("ACL", "SETUSER", "t", "on", ">pw", "~*", "+@all", rule)
        store = Store(f"redis://t:pw@127.0.0.1:{port_of(own_redis.url)}/0", prefix)
        bench.store = store
        try:
            recovery = await bench.recovered()
            projection = Projection(recovery.state, store, pause_s=0.0)
            await written(projection, recovery.position)
            lines = [line for line in caplog.messages if "Redis does not take the state" in line]
            if rule == "-hscan":  # reading only
                lines = [line for line in caplog.messages if "Redis cannot be read" in line]
            assert len(lines) == 1
            assert says in lines[0]
            assert "+evalsha" in lines[0]
            assert "pw" not in lines[0]
            client.execute_command("ACL", "SETUSER", "t", "~*", "+@all")
            await written(projection, recovery.position)
            await held(store, snapshot(recovery.state))
        finally:
            client.close()
            await store.close()

    play(kafka, own_redis.url, prefix, tmp_path, scene)


def test_a_primary_without_its_replicas_is_one_line(
    kafka: str, prefix: str, tmp_path: Path, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(bench: Bench) -> None:
        client = redis_client.Redis.from_url(own_redis.url)
        recovery = await bench.recovered()
        client.config_set("min-replicas-to-write", "1")
        projection = Projection(recovery.state, bench.store, pause_s=0.0)
        await written(projection, recovery.position)
        lines = [line for line in caplog.messages if "Redis does not take the state" in line]
        assert len(lines) == 1
        assert "min-replicas-to-write" in lines[0]
        client.config_set("min-replicas-to-write", "0")
        await written(projection, recovery.position)
        await held(bench.store, snapshot(recovery.state))
        client.close()

    play(kafka, own_redis.url, prefix, tmp_path, scene)


def test_a_redis_that_lacks_a_command_is_one_line(
    kafka: str, prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import services.runtime.stack.redis as embedded

    plain = embedded._command
    hidden = ["--rename-command", "EVALSHA", "", "--rename-command", "EVAL", ""]
    monkeypatch.setattr(embedded, "_command", lambda *parts: [*plain(*parts), *hidden])
    server = RedisServer.start(tmp_path)

    async def scene(bench: Bench) -> None:
        recovery = await bench.recovered()
        assert recovery.came_from == "the log"
        await written(Projection(recovery.state, bench.store, pause_s=0.0), recovery.position)
        lines = [line for line in caplog.messages if "Redis does not take the state" in line]
        assert len(lines) == 1
        assert "lacks or hides a command" in lines[0]

    try:
        play(kafka, server.url, prefix, tmp_path, scene)
    finally:
        server.stop()


def test_what_redis_holds_of_another_log_neither_enters_the_state_nor_ends_the_scheduler(
    kafka: str, prefix: str, tmp_path: Path, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(bench: Bench) -> None:
        recovery = await bench.recovered()
        projection = Projection(recovery.state, bench.store, pause_s=0.0)
        await written(projection, recovery.position)
        # The same, as if of a log in which this entry was written at another time.
        recovery.state.meta.now += 1.0
        recovery.state.live.pop("task-00000000")
        fields = snapshot(recovery.state)
        epoch = recovery.state.meta.epoch
        await bench.store.begin()
        await bench.store.build(fields)
        await bench.store.adopt({"meta": fields["meta"]}, epoch=epoch, seq=1, journal=recovery.position)
        again = await bench.recovered()  # with all its tasks
        assert again.came_from == "the log"
        assert any("it is of another log" in line for line in caplog.messages)
        # And one of a far newer epoch: it stays until our own journal shows that nobody else writes there.
        client = redis_client.Redis.from_url(own_redis.url)
        client.hset(redis_key(prefix), mapping={"epoch": "99", "mark": "99:1"})
        projection = Projection(again.state, bench.store, pause_s=0.0)
        await written(projection, again.position)
        await written(projection, again.position + 1)
        assert client.hget(redis_key(prefix), "epoch") == b"99"
        await written(projection, again.position + 2)
        await written(projection, again.position + 3)
        await held(bench.store, snapshot(again.state))
        assert client.hget(redis_key(prefix), "epoch") == str(again.state.meta.epoch).encode()
        client.close()

    play(kafka, own_redis.url, prefix, tmp_path, scene)


def test_a_projection_that_was_written_in_part_is_not_used(
    kafka: str, prefix: str, tmp_path: Path, own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(bench: Bench) -> None:
        client = redis_client.Redis.from_url(own_redis.url)
        client.hset(redis_key(prefix), mapping={"task:x": b"torn"})
        recovery = await bench.recovered()
        assert recovery.came_from == "the log"
        assert any("written in part" in line for line in caplog.messages)
        client.close()

    play(kafka, own_redis.url, prefix, tmp_path, scene)


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
