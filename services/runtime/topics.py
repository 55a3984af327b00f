"""Topics on the broker. Invariant: after `create`, every declared topic exists with at least its declared partitions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from schemas.topics import POOLS, Topic, all_topics
from services.runtime import retention
from services.runtime.errors import Unavailable
from services.runtime.retention import TopicError

__all__ = ["TopicError", "admin", "create", "partition_counts"]

DEADLINE_S = 30.0
log = logging.getLogger(__name__)


@asynccontextmanager
async def admin(kafka: str) -> AsyncIterator[Any]:
    """A connected admin client.

    Raises:
        Unavailable: no broker answers.
    """
    client = AIOKafkaAdminClient(bootstrap_servers=kafka, request_timeout_ms=15_000)
    try:
        try:
            await asyncio.wait_for(client.start(), DEADLINE_S)
        except (KafkaError, TimeoutError, OSError) as error:
            raise Unavailable(
                f"no Kafka broker answers at {kafka}; start one (`temper up`) or set TEMPER_KAFKA"
            ) from error
        yield client
    finally:
        try:
            await asyncio.wait_for(client.close(), DEADLINE_S)
        except (KafkaError, TimeoutError, OSError) as error:
            log.warning("the admin client did not close cleanly: %s", error or type(error).__name__)


async def create(
    kafka: str, prefix: str, pools: Iterable[str] = POOLS, *, shards: int = 1, replication: int = 1
) -> None:
    """Make every topic of an installation with these sampler pools and shards that does not exist yet.

    What the broker would delete by itself although the scheduler needs it is kept from now on, and said so.

    Raises:
        TopicError: the broker refuses a topic, or one exists with fewer partitions or a shorter retention than declared.
        Unavailable: no broker answers.
    """
    declared = {prefix + topic.name: topic for topic in all_topics(tuple(pools), shards)}
    async with admin(kafka) as client:
        there = set(await client.list_topics())
        missing = {name: topic for name, topic in declared.items() if name not in there}
        if missing:
            response = await client.create_topics(
                [_new(name, topic, replication) for name, topic in missing.items()]
            )
            for name, code, *detail in response.topic_errors:
                error = for_code(code)
                if code and error is not TopicAlreadyExistsError:
                    raise TopicError(
                        f"topic {name}: the broker refused it: {detail[0] if detail and detail[0] else error.__name__}"
                    )
        counts = await _counts(client, list(declared))
        kept = {name: topic for name, topic in declared.items() if name not in missing}
        await retention.align(client, kept)
    for name, topic in declared.items():
        if counts[name] < topic.partitions:
            raise TopicError(
                f"topic {name} has {counts[name]} partitions, {topic.partitions} are declared; "
                "add partitions while no service runs, or use another prefix"
            )


async def partition_counts(kafka: str, names: Iterable[str]) -> dict[str, int]:
    """Partitions of existing topics (full names).

    Raises:
        TopicError: one of them does not exist.
        Unavailable: no broker answers.
    """
    async with admin(kafka) as client:
        return await _counts(client, list(names))


async def _counts(client: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    """Polls, since a broker answers a creation before all its metadata shows it and offers no event for that."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        try:
            described = await client.describe_topics(names)
        except KafkaError as error:
            raise Unavailable(
                f"the broker does not describe its topics: {type(error).__name__}: {error}"
            ) from error
        counts = {entry["topic"]: len(entry["partitions"]) for entry in described if not entry["error_code"]}
        absent = [name for name in names if not counts.get(name)]
        if not absent:
            return counts
        settled = all(
            for_code(entry["error_code"]).__name__ == "UnknownTopicOrPartitionError"
            for entry in described
            if entry["error_code"]
        )
        if time.monotonic() > ends or (settled and time.monotonic() > ends - DEADLINE_S + 3.0):
            raise TopicError(f"topic {absent[0]} does not exist; make it with `temper topics create`")
        await asyncio.sleep(0.05)


def _new(name: str, topic: Topic, replication: int) -> NewTopic:
    return NewTopic(
        name=name,
        num_partitions=topic.partitions,
        replication_factor=replication,
        topic_configs=topic.config(),
    )
