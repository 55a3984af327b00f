"""Events to record bytes and back. Invariant: type, version, encoding and trace context stand in headers and envelope alike."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol, cast

import msgspec

from schemas.base import Event
from schemas.envelope import (
    JSON,
    MSGPACK,
    ContentType,
    DecodeError,
    Envelope,
    UnknownEvent,
    content_type_of,
    decode,
    encode,
    open_envelope,
)

__all__ = [
    "DecodeError",
    "Headers",
    "RawRecord",
    "Record",
    "UnknownEvent",
    "content_type_for",
    "pack",
    "unpack",
]

Headers = list[tuple[str, bytes]]
OUTSIDE = frozenset({"tasks"})
"""Topics that producers outside the project write too: JSON, so that any tool can read and write them."""


class RawRecord(Protocol):
    """What is used of aiokafka's ConsumerRecord."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Any


class Record(msgspec.Struct, frozen=True):
    """One decoded record."""

    topic: str
    """Without the installation's prefix."""
    partition: int
    offset: int
    timestamp_ms: int
    """When the record was appended or created, milliseconds since the epoch, by the broker's or producer's clock."""
    key: str
    envelope: Envelope
    event: Event
    redelivered: int = 0
    """Deliveries before this one that no worker survived to finish."""


def content_type_for(topic: str) -> ContentType:
    """Encoding in which the project writes a topic (named without prefix)."""
    return JSON if topic in OUTSIDE else MSGPACK


def pack(
    event: Event,
    *,
    id: str,  # noqa: A002 (the field's name on the wire)
    key: str,
    occurred_at: float,
    producer: str,
    traceparent: str = "",
    content_type: ContentType = MSGPACK,
) -> tuple[bytes, Headers]:
    """Value and headers of the record that carries `event`."""
    value = encode(
        event,
        id=id,
        key=key,
        occurred_at=occurred_at,
        producer=producer,
        traceparent=traceparent,
        content_type=content_type,
    )
    headers = [*_headers(event.type_name(), event.VERSION, content_type)]
    if traceparent:
        headers.append(("traceparent", traceparent.encode()))
    return value, headers


@cache
def _headers(name: str, version: int, content_type: ContentType) -> tuple[tuple[str, bytes], ...]:
    return (
        ("type", name.encode()),
        ("schema", str(version).encode()),
        ("content-type", content_type.encode()),
    )


def unpack(raw: RawRecord, prefix: str = "", *, redelivered: int = 0) -> Record:
    """The record decoded; the content type comes from the headers if they name one, else from the first byte.

    Raises:
        UnknownEvent: a well-formed envelope of an unknown (type, version).
        DecodeError: anything else that is not an event.
    """
    value: bytes | None = raw.value
    declared = header(raw.headers, "content-type").partition(";")[0].strip().lower()
    envelope = decode(value, declared or None)
    event = open_envelope(
        envelope, cast("ContentType", declared) if declared else content_type_of(value or b"")
    )
    if not envelope.traceparent and (traceparent := header(raw.headers, "traceparent")):
        envelope = msgspec.structs.replace(envelope, traceparent=traceparent)
    return Record(
        topic=raw.topic.removeprefix(prefix),
        partition=raw.partition,
        offset=raw.offset,
        timestamp_ms=raw.timestamp,
        key=envelope.key if raw.key is None else bytes(raw.key).decode("utf-8", "replace"),
        envelope=envelope,
        event=event,
        redelivered=redelivered,
    )


def header(headers: Iterable[tuple[str, bytes | None]] | None, name: str) -> str:
    """Value of the last header called `name`, as text; empty if there is none."""
    found = ""
    for key, value in headers or ():
        if key == name:
            found = (value or b"").decode("utf-8", "replace")
    return found
