"""A Redis that is slow, stalled, of another log, or without a command or right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_client

from services.runtime.stack.redis import RedisServer
from services.scheduler.projection import Projection
from services.scheduler.settings import redis_key
from services.scheduler.snapshot import snapshot
from services.scheduler.store import Store
from tests.integration.scheduler.faulty import (
    SHORT_S,
    Bench,
    Relay,
    held,
    own_redis,
    play,
    port_of,
    written,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["own_redis"]

pytestmark = pytest.mark.integration


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
