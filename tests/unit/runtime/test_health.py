from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from services.runtime.errors import Unavailable
from services.runtime.health import Endpoint, Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


async def get(port: int, path: str) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), json.loads(body)


def test_status_is_about_progress() -> None:
    clock = Clock()
    progress = Progress(clock)
    progress.beat("poll", deadline_s=5.0)
    progress.beat("commit", deadline_s=60.0)
    clock.now += 5.0
    assert progress.status()[0]
    clock.now += 0.1
    ok, detail = progress.status()
    assert not ok
    assert not detail["activities"]["poll"]["ok"]
    assert detail["activities"]["commit"]["ok"]
    progress.forget("poll")
    assert progress.status()[0]


def test_endpoint_answers_with_progress_and_readiness() -> None:
    async def test() -> None:
        clock = Clock()
        progress = Progress(clock)
        endpoint = Endpoint(progress)
        port = await endpoint.start()
        try:
            progress.beat("poll", deadline_s=5.0)
            assert (await get(port, "/healthz"))[0] == 200
            assert (await get(port, "/readyz"))[0] == 503
            progress.ready()
            assert (await get(port, "/readyz"))[0] == 200
            clock.now += 6.0
            status, detail = await get(port, "/healthz")
            assert status == 503
            assert detail["activities"]["poll"]["age_s"] == 6.0
            assert (await get(port, "/readyz"))[0] == 503
            progress.beat("poll", deadline_s=5.0)
            progress.drain()
            assert (await get(port, "/readyz"))[0] == 503
            assert (await get(port, "/healthz"))[0] == 200
            assert (await get(port, "/else"))[0] == 404
        finally:
            await endpoint.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    asyncio.run(test())


def test_port_in_use_is_one_line() -> None:
    async def test() -> None:
        first = Endpoint(Progress())
        port = await first.start()
        try:
            with pytest.raises(Unavailable, match="TEMPER_HEALTH_PORT"):
                await Endpoint(Progress(), port).start()
        finally:
            await first.stop()

    asyncio.run(test())
