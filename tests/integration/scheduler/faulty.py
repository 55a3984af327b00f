"""A log of a hundred tasks whose Redis can be slow or stalled: a real one, with a relay before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest

from services.runtime import topics
from services.runtime.blobs import Blobs
from services.runtime.producer import Producer
from services.runtime.stack.redis import RedisServer
from services.scheduler.bench.recovery import _write
from services.scheduler.projection import Projection
from services.scheduler.shard import recover
from services.scheduler.store import Store
from tests.integration.scheduler.test_recovery import TABLE, process_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
