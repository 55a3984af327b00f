"""Events out. Invariant: `emit` returns only when every record is acknowledged by all in-sync replicas, or raises in time."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    UnknownProducerId,
    UnknownTopicOrPartitionError,
)

from schemas.base import Event
from services.runtime import telemetry
from services.runtime.batches import FEW, grouped, partition_of
from services.runtime.closing import close
from services.runtime.errors import Unavailable
from services.runtime.wire import Headers, content_type_for, pack

DEADLINE_S = 30.0
START_S = 15.0
LARGEST_RECORD = 16 << 20
LINGER_MS = 2
FATAL = (OutOfOrderSequenceNumber, UnknownProducerId, InvalidProducerEpoch, ProducerClosed, IllegalOperation)
"""After one of these the client never sends again; a new one does (aiokafka issues 1017, 1133)."""

log = logging.getLogger(__name__)


class ProducerError(Unavailable):
    """A record was not acknowledged; whether the broker has it is unknown, so send it again under the same id."""


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One event to be written."""

    topic: str
    """Without prefix."""
    event: Event
    key: str
    id: str = ""
    """Deterministic where the event is an effect of others; empty takes a random one."""
    traceparent: str = ""
    """Empty takes the current span's."""


class _Message(msgspec.Struct, frozen=True, gc=False):
    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int | None = None
    """None: by key."""


class Producer:
    """Idempotent producer of one process; safe for concurrent use within its event loop."""

    def __init__(self, kafka: str, prefix: str, name: str, *, linger_ms: int = LINGER_MS) -> None:
        """`kafka`: bootstrap servers; `prefix`: of topic names; `name`: what envelopes call the producer.

        `linger_ms`: how long a record waits for others to share its request; 0 where each is awaited alone.
        """
        self._kafka = kafka
        self._linger_ms = linger_ms
        self._prefix = prefix
        self.name = name
        self._client: AIOKafkaProducer | None = None
        self._rebuild = asyncio.Lock()
        self.sent = 0
        self.rebuilt = 0

    @property
    def prefix(self) -> str:
        """Of topic names."""
        return self._prefix

    async def start(self) -> None:
        """Connect.

        Raises:
            ProducerError: no broker answers.
        """
        self._client = await self._connect()

    async def stop(self) -> None:
        """Flush and disconnect, within a deadline."""
        client, self._client = self._client, None
        if client is not None:
            await close(client, "the producer")

    async def emit(self, *outgoing: Outgoing, deadline_s: float = DEADLINE_S) -> None:
        """Write all events and wait for all acknowledgements; order is kept per key.

        Raises:
            ProducerError: a record is too large, its topic does not exist, or an acknowledgement is missing at the deadline.
        """
        now, span = time.time(), telemetry.current_traceparent()
        await self._send([self._message(item, now, span) for item in outgoing], deadline_s)

    async def append(self, item: Outgoing, *, partition: int, deadline_s: float = DEADLINE_S) -> int:
        """Write one event to the partition of that number and wait for its acknowledgement; returns its offset.

        Raises:
            ProducerError: as `emit`.
        """
        message = self._message(item, time.time(), telemetry.current_traceparent(), partition)
        return (await self._send([message], deadline_s))[-1]

    def _message(self, item: Outgoing, now: float, span: str, partition: int | None = None) -> _Message:
        value, headers = pack(
            item.event,
            id=item.id or uuid.uuid4().hex,
            key=item.key,
            occurred_at=now,
            producer=self.name,
            traceparent=item.traceparent or span,
            content_type=content_type_for(item.topic),
        )
        return _Message(self._prefix + item.topic, value, item.key.encode(), headers, partition)

    async def send_raw(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Write one record as it stands and wait for its acknowledgement; `topic` without prefix.

        Raises:
            ProducerError: as `emit`.
        """
        if value is None and key is None:
            value = (
                b""  # A record without key and value is legal in Kafka, but this client refuses to write one.
            )
        await self._send([_Message(self._prefix + topic, value, key, headers)], deadline_s)

    async def _send(self, messages: Sequence[_Message], deadline_s: float) -> list[int]:
        """Offsets of the messages, those that had to be sent twice at the end."""
        ends = time.monotonic() + deadline_s
        client = self._client
        offsets: list[int] = []
        unsent = await self._attempt(client, messages, ends, offsets)
        if unsent:
            client = await self._replace(client)
            unsent = await self._attempt(client, unsent, ends, offsets)
        if unsent:
            raise ProducerError(
                f"{unsent[0].topic}: the broker refuses this producer, a fresh connection too; look at its log"
            )
        self.sent += len(messages)
        return offsets

    async def _attempt(
        self, client: AIOKafkaProducer, messages: Sequence[_Message], ends: float, offsets: list[int]
    ) -> list[_Message]:
        """Send `messages`; those to be sent again over a new client come back, of the others `offsets` takes the offset."""
        if client is None:
            raise ProducerError("the producer is not started")
        pending: list[tuple[list[_Message], asyncio.Future[Any] | None]] = []
        for group in await self._groups(client, messages, ends):
            try:
                async with _until(ends):
                    handed = await _hand_over(client, group)
                pending.append((group, handed))
            except FATAL:
                pending.append((group, None))
            except TimeoutError as error:
                await _settle(pending, 0.0)
                raise ProducerError(
                    f"{group[0].topic}: no room to send before the deadline; is the broker up?"
                ) from error
            except KafkaError as error:
                await _settle(pending, max(0.0, ends - time.monotonic()))
                raise _explain(group[0], error) from error
        await _settle(pending, max(0.0, ends - time.monotonic()))
        again: list[_Message] = []
        for group, future in pending:
            if future is None or future.cancelled():
                again += group
                continue
            if not future.done():
                raise ProducerError(
                    f"{group[0].topic}: no acknowledgement before the deadline; is the broker up?"
                )
            failure = future.exception()
            if isinstance(failure, FATAL):
                again += group
            elif isinstance(failure, KafkaError):
                raise _explain(group[0], failure) from failure
            elif failure is not None:
                raise failure
            else:
                first = int(future.result().offset)
                offsets += range(first, first + len(group))
        return again

    async def _groups(
        self, client: AIOKafkaProducer, messages: Sequence[_Message], ends: float
    ) -> list[list[_Message]]:
        """`messages` as they are handed over: one by one if they are few, else in batches."""
        if len(messages) < FEW:
            return [[message] for message in messages]
        partitions: dict[str, int] = {}
        for topic in dict.fromkeys(message.topic for message in messages):
            try:
                async with _until(ends):
                    partitions[topic] = len(await client.partitions_for(topic))
            except FATAL:
                return [[message] for message in messages]  # the client says so of each again
            except TimeoutError as error:
                raise ProducerError(f"{topic}: unknown before the deadline; is the broker up?") from error
            except KafkaError as error:
                raise _explain(messages[0], error) from error
        return list(grouped(messages, partitions))

    async def _replace(self, broken: AIOKafkaProducer | None) -> AIOKafkaProducer:
        async with self._rebuild:
            if self._client is broken:
                log.warning("the producer is broken for good; connecting anew")
                self._client = await self._connect()
                self.rebuilt += 1
                if broken is not None:
                    await close(broken, "the producer")
            return self._client

    async def _connect(self) -> AIOKafkaProducer:
        client = AIOKafkaProducer(
            bootstrap_servers=self._kafka,
            client_id=self.name,
            enable_idempotence=True,
            acks="all",
            compression_type="lz4",
            linger_ms=self._linger_ms,
            max_batch_size=256 << 10,
            max_request_size=LARGEST_RECORD,
            request_timeout_ms=10_000,
        )
        try:
            await asyncio.wait_for(client.start(), START_S)
        except (KafkaError, TimeoutError, OSError) as error:
            await close(client, "the producer")
            raise ProducerError(
                f"no Kafka broker answers at {self._kafka}; start one (`temper up`) or set TEMPER_KAFKA"
            ) from error
        return client


def _until(ends: float) -> asyncio.Timeout:
    """A timeout at `ends` of the monotonic clock."""
    return asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, ends - time.monotonic()))


async def _hand_over(client: AIOKafkaProducer, group: Sequence[_Message]) -> asyncio.Future[Any]:
    """Give a group to the client; done with the metadata of its first record."""
    first = group[0]
    if len(group) == 1:
        single: asyncio.Future[Any] = await client.send(
            first.topic, first.value, first.key, partition=first.partition, headers=first.headers
        )
        return single
    batch = client.create_batch()
    for message in group:
        appended = batch.append(key=message.key, value=message.value, timestamp=None, headers=message.headers)
        if appended is None:
            raise MessageSizeTooLargeError(f"a batch of {len(group)} records does not fit")
    batch.close()
    partitions = {first.topic: len(await client.partitions_for(first.topic))}
    future: asyncio.Future[Any] = await client.send_batch(
        batch, first.topic, partition=partition_of(first, partitions)
    )
    return future


async def _settle(
    pending: Sequence[tuple[Sequence[_Message], asyncio.Future[Any] | None]], timeout_s: float
) -> None:
    """Wait for the acknowledgements; never cancels them, since the records may be on their way."""
    futures = [future for _, future in pending if future is not None]
    if futures:
        await asyncio.wait(futures, timeout=timeout_s)
    for future in futures:
        future.add_done_callback(_observe)


def _observe(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _explain(message: _Message, error: KafkaError) -> ProducerError:
    if isinstance(error, MessageSizeTooLargeError):
        size = len(message.value or b"")
        return ProducerError(
            f"{message.topic}: a record of {size} bytes is too large; put its payload into the blob store"
        )
    if isinstance(error, UnknownTopicOrPartitionError):
        return ProducerError(f"{message.topic}: no such topic; make it with `temper topics create`")
    return ProducerError(f"{message.topic}: {type(error).__name__}: {error}")
