from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from services.runtime.stack import Stack, StackError
from services.runtime.stack import stack as stack_module

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

OWN: dict[str, str] = {}


async def _create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    finally:
        await admin.close()


async def _produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type="zstd")
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value, key=value)
    finally:
        await producer.stop()


async def _consume(bootstrap: str, topic: str, count: int) -> set[bytes]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: set[bytes] = set()
    try:
        async with asyncio.timeout(30):
            while len(found) < count:
                found.add((await consumer.getone()).value)
    finally:
        await consumer.stop()
    return found


def test_round_trip(kafka: str, redis_url: str, prefix: str) -> None:
    values = [f"{number}".encode() for number in range(20)]
    asyncio.run(_create(kafka, prefix + "t"))
    asyncio.run(_produce(kafka, prefix + "t", values))
    assert asyncio.run(_consume(kafka, prefix + "t", 20)) == set(values)
    with redis.Redis.from_url(redis_url) as client:
        client.set(prefix + "key", b"value")
        assert client.get(prefix + "key") == b"value"


def test_broker_does_not_create_topics(kafka: str, prefix: str) -> None:
    async def ask() -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            await admin.describe_topics([prefix + "absent"])
            return list(await admin.list_topics())
        finally:
            await admin.close()

    assert prefix + "absent" not in asyncio.run(ask())


def _wait_dead(pids: list[int], seconds: float) -> list[int]:
    """Those that still run at the deadline."""
    end = time.monotonic() + seconds
    running: list[int] = []
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            # Readable also for one that is dead but not yet waited for, which kill(pid, 0) would still find.
            if not poller.poll(max(0.0, end - time.monotonic()) * 1000):
                running.append(pid)
        finally:
            os.close(descriptor)
    return running


SUPERVISOR = """
import pathlib, subprocess, sys, threading
from services.runtime.stack import Stack
# Started from a thread that then ends (PR_SET_PDEATHSIG of that thread would fire), in a process whose
# forked child lives on (it would keep a pipe of ours open).
found = []
thread = threading.Thread(target=lambda: found.append(Stack.start(pathlib.Path(sys.argv[1]), environ={})))
thread.start()
thread.join()
stack = found[0]
import os
if os.fork() == 0:
    threading.Event().wait(60)
    os._exit(0)
assert stack.kafka_server and stack.redis_server
servers = stack.kafka_server.process, stack.redis_server.process
print(stack.kafka, *(f"{p.pid} {p.keeper.pid}" for p in servers), flush=True)
threading.Event().wait(60)
"""


@pytest.mark.slow
def test_killed_supervisor_takes_all_along_and_the_data_stay(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SUPERVISOR, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as supervisor:
        try:
            assert supervisor.stdout is not None
            assert select.select([supervisor.stdout], [], [], 90)[0]
            bootstrap, *numbers = supervisor.stdout.readline().split()
            pids = [int(number) for number in numbers]
            assert len(pids) == 4
            asyncio.run(_create(bootstrap, "kept"))
            asyncio.run(_produce(bootstrap, "kept", [b"a", b"b"]))
            os.kill(supervisor.pid, signal.SIGKILL)
            supervisor.wait(10)
            assert _wait_dead(pids, 15) == []
        finally:
            # The forked child of the supervisor; it is of the supervisor's session.
            os.killpg(supervisor.pid, signal.SIGKILL)
    with Stack.start(tmp_path, environ=OWN) as again:
        assert asyncio.run(_consume(again.kafka, "kept", 2)) == {b"a", b"b"}
        assert again.kafka_server is not None
        kafka_pid = again.kafka_server.process.pid
        with pytest.raises(StackError, match="another stack runs on this data"):
            _start_at_once(tmp_path)
    assert _wait_dead([kafka_pid], 0) == []


def _start_at_once(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.runtime.stack.stack._LOCK_S", 0.2)
        Stack.start(root, environ=OWN)


def test_port_in_use_is_one_line_and_nothing_stays(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StackError, match=rf"Kafka: port {port} .*cannot be used") as caught:
            Stack.start(tmp_path, environ=OWN, kafka_port=port)
        assert "\n" not in str(caught.value)
        with pytest.raises(StackError, match=rf"Redis: port {port} .*cannot be used"):
            Stack.start(tmp_path, environ=OWN, redis_port=port)
    # The data are free again at once: Redis, which had been started, is gone.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.runtime.stack.stack._LOCK_S", 0.0)
        os.close(stack_module._lock(tmp_path))


def test_broker_that_does_not_come_up_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"Kafka: .*Invalid value x .*log\.retention\.ms") as caught:
        Stack.start(tmp_path, environ=OWN, kafka_config={"log.retention.ms": "x"})
    assert "\n" not in str(caught.value)


def test_outside_servers_are_used_and_left_alone(stack: Stack, tmp_path: Path) -> None:
    environ = {"TEMPER_KAFKA": stack.kafka, "TEMPER_REDIS": stack.redis}
    with Stack.start(tmp_path / "unused", environ=environ) as outside:
        assert (outside.kafka, outside.redis) == (stack.kafka, stack.redis)
        assert outside.kafka_server is None
        assert outside.redis_server is None
    assert not (tmp_path / "unused").exists()
    with redis.Redis.from_url(stack.redis) as client:
        assert client.ping()


def test_start_inside_an_event_loop(stack: Stack, tmp_path: Path) -> None:
    async def start() -> str:
        environ = {"TEMPER_KAFKA": stack.kafka, "TEMPER_REDIS": stack.redis}
        return Stack.start(tmp_path, environ=environ).kafka

    assert asyncio.run(start()) == stack.kafka
