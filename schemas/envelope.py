"""The envelope around every event. Invariant: the envelope always decodes; only then does (type, version) pick the struct."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from schemas.base import Event
from schemas.events import REGISTRY
from schemas.plain import fault, uncountable
from schemas.tasks import TaskSubmitted

ContentType = Literal["application/json", "application/msgpack"]
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"


class DecodeError(ValueError):
    """The bytes are no envelope, or the data does not fit its struct: for the dead-letter topic."""


class UnknownEvent(DecodeError):  # noqa: N818 (named as the outcome is called)
    """A well-formed envelope of a (type, version) not in the registry: skipped by observers, dead-lettered by owners."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What is on the wire."""

    id: str
    """Deterministic where the event is an effect of others, so that a duplicate is recognised."""
    type: str
    version: int = 1
    key: str
    """Record key, repeated here so that a dead letter keeps it."""
    occurred_at: float
    """Seconds since the epoch, by the producer's clock."""
    producer: str
    traceparent: str = ""
    """W3C trace context; an outside producer's own is kept."""
    data: msgspec.Raw


_encoders: dict[ContentType, msgspec.json.Encoder | msgspec.msgpack.Encoder] = {
    JSON: msgspec.json.Encoder(),
    MSGPACK: msgspec.msgpack.Encoder(),
}
_json = msgspec.json.Decoder(Envelope)
_msgpack = msgspec.msgpack.Decoder(Envelope)
_data: dict[tuple[ContentType, str, int], Any] = {}
for (_type, _version), _struct in REGISTRY.items():
    _data[JSON, _type, _version] = msgspec.json.Decoder(_struct)
    _data[MSGPACK, _type, _version] = msgspec.msgpack.Decoder(_struct)


def encode(
    event: Event,
    *,
    id: str,  # noqa: A002 (the field's name on the wire)
    key: str,
    occurred_at: float,
    producer: str,
    traceparent: str = "",
    content_type: ContentType = MSGPACK,
) -> bytes:
    """Bytes of `event` in its envelope."""
    encoder = _encoders[content_type]
    return encoder.encode(
        Envelope(
            id=id,
            type=event.type_name(),
            version=event.VERSION,
            key=key,
            occurred_at=occurred_at,
            producer=producer,
            traceparent=traceparent,
            data=msgspec.Raw(encoder.encode(event)),
        )
    )


def decode(raw: bytes | None, content_type: str | None = None) -> Envelope:
    """First step: the envelope. Without a content type, JSON is recognised by its opening brace.

    Raises:
        DecodeError: not an envelope, or a content type that is neither JSON nor MessagePack.
    """
    if not raw:
        raise DecodeError("record is empty; an event envelope was expected")
    if content_type is None:
        content_type = JSON if raw.lstrip()[:1] == b"{" else MSGPACK
    try:
        if content_type == JSON:
            return _json.decode(raw)
        if content_type == MSGPACK:
            return _msgpack.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"not an event envelope ({content_type}): {error}") from error
    raise DecodeError(f"content type {content_type!r} is not supported; use {JSON} or {MSGPACK}")


def content_type_of(raw: bytes) -> ContentType:
    """Encoding of an envelope that was decoded from `raw` without a content type."""
    return JSON if raw.lstrip()[:1] == b"{" else MSGPACK


def open_envelope(envelope: Envelope, content_type: ContentType) -> Event:
    """Second step: the event.

    Raises:
        UnknownEvent: (type, version) is not in the registry.
        DecodeError: the data does not fit the struct.
    """
    decoder = _data.get((content_type, envelope.type, envelope.version))
    if decoder is None:
        raise UnknownEvent(f"unknown event {envelope.type} version {envelope.version}")
    try:
        event: Event = decoder.decode(envelope.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"{envelope.type} version {envelope.version}: {error}") from error
    # What others will have to count with and to write again, in any encoding, is looked at before anything is decided on it.
    said = uncountable(event)
    if isinstance(event, TaskSubmitted):
        said = said or fault(event.task.spec, "task.spec")
    if said:
        raise DecodeError(f"{envelope.type} version {envelope.version}: {said}")
    return event
