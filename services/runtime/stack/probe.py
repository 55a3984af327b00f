"""A server is called ready only after it has answered a real request; every probe has a deadline."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import redis
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from services.runtime.stack.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_PAUSE_S = 0.05


def kafka_addresses(bootstrap: str, what: str) -> list[tuple[str, int]]:
    """Parse `host:port[,host:port...]`.

    Raises:
        StackError: an entry has no host, or no port between 1 and 65535.
    """
    found: list[tuple[str, int]] = []
    for entry in bootstrap.split(","):
        host, _, port = entry.strip().rpartition(":")
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise StackError(
                f"{what}={bootstrap!r}: {entry.strip()!r} is not an address: write host:port[,host:port]"
            )
        found.append((host.strip("[]"), int(port)))
    return found


def kafka_answers(bootstrap: str, deadline_s: float) -> str | None:
    """Ask for the cluster's description once; None when a controller is known, else the reason it is not."""
    reason = "no address"
    for host, port in kafka_addresses(bootstrap, "bootstrap"):
        try:
            socket.create_connection((host, port), timeout=deadline_s).close()
        except OSError as error:
            reason = f"{host}:{port}: {error.strerror or error}"
        else:
            return _outside_any_loop(_describe(bootstrap, deadline_s))
    return reason


def await_kafka(bootstrap: str, deadline_s: float, alive: Callable[[], str | None]) -> None:
    """Wait until the broker answers.

    `alive` returns None while waiting still makes sense, else the reason why it does not.

    Raises:
        StackError: the deadline passed, or `alive` gave a reason.
    """
    end = time.monotonic() + deadline_s
    while True:
        left = max(end - time.monotonic(), 0.2)
        reason = kafka_answers(bootstrap, min(left, 5.0))
        if reason is None:
            return
        gone = alive()
        if gone is not None:
            raise StackError(gone)
        if time.monotonic() >= end:
            raise StackError(f"no Kafka broker answered at {bootstrap} within {deadline_s:.0f} s ({reason})")
        # A broker that starts has no event to wait for; the next connection attempt is the event.
        time.sleep(_PAUSE_S)


def redis_answers(url: str, deadline_s: float) -> str | None:
    """Ping once; None when it answered and takes writes, else the reason."""
    try:
        client = redis.Redis.from_url(url, socket_connect_timeout=deadline_s, socket_timeout=deadline_s)
    except ValueError as error:
        return f"not a Redis address ({str(error).splitlines()[0]}): write redis://host:port/db"
    try:
        client.ping()
    except redis.RedisError as error:
        return str(error)
    finally:
        client.close()
    return None


def await_redis(url: str, deadline_s: float, alive: Callable[[], str | None]) -> None:
    """Wait until Redis answers (as `await_kafka`; a server that still loads its data does not count).

    Raises:
        StackError: the deadline passed, or `alive` gave a reason.
    """
    end = time.monotonic() + deadline_s
    while True:
        reason = redis_answers(url, max(min(end - time.monotonic(), 5.0), 0.2))
        if reason is None:
            return
        gone = alive()
        if gone is not None:
            raise StackError(gone)
        if time.monotonic() >= end:
            raise StackError(f"no Redis answered at {url} within {deadline_s:.0f} s ({reason})")
        time.sleep(_PAUSE_S)


async def _describe(bootstrap: str, deadline_s: float) -> str | None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=int(deadline_s * 1000))
    try:
        async with asyncio.timeout(deadline_s):
            await admin.start()
            cluster = await admin.describe_cluster()
    except TimeoutError:
        return "it accepts connections but does not answer as a Kafka broker"
    except (KafkaError, OSError) as error:
        return str(error) or type(error).__name__
    finally:
        await admin.close()
    return None if cluster["brokers"] and cluster["controller_id"] >= 0 else "it has no controller yet"


def _outside_any_loop[T](work: Coroutine[None, None, T]) -> T:
    """Run a coroutine to its end, also where the caller's thread already runs an event loop."""
    logger = logging.getLogger("aiokafka")
    level = logger.level
    # A probe that fails is an answer, not an error worth a log line.
    logger.setLevel(logging.CRITICAL)
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()
    finally:
        logger.setLevel(level)
