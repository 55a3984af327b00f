"""FastStream for observers of quiet topics. Invariant: every subscriber has an explicit ack policy, and no topic is made here.

FastStream's default policy loses records on shutdown; observers here read the log from its beginning, outside any
group, acknowledge nothing, and so see everything again after a restart. Work goes through `WorkConsumer` instead.
"""

from __future__ import annotations

import functools
import logging
import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from faststream import AckPolicy, BaseMiddleware
from faststream.kafka import KafkaBroker, Topic
from faststream.specification import AsyncAPI
from pydantic_core import core_schema

from schemas.base import Event
from schemas.envelope import DecodeError, UnknownEvent
from schemas.events import BY_TOPIC, CURRENT
from services.runtime.errors import one_line
from services.runtime.wire import Record, unpack

if TYPE_CHECKING:
    from faststream.message import StreamMessage

GRACE_S = 15.0
EVENTS_VERSION = 1
Observer = Callable[[Record], Awaitable[None]]
log = logging.getLogger(__name__)


class EventCodec:
    """Our envelopes as FastStream's message bodies."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    async def decode(self, msg: StreamMessage[Any]) -> Any:
        """The record in a message.

        Raises:
            DecodeError: not an event.
        """
        return unpack(msg.raw_message, self._prefix)

    async def decode_batch(self, msg: StreamMessage[Sequence[Any]]) -> list[Any]:
        """The records in a batch.

        Raises:
            DecodeError: one of them is not an event.
        """
        return [unpack(raw, self._prefix) for raw in msg.raw_message]

    async def encode(self, msg: Any, serializer: Any = None) -> tuple[bytes, str | None]:  # noqa: ARG002 (FastStream's protocol)
        """Bytes as they are, and nothing as no bytes: events are written by `Producer`, which waits for every acknowledgement.

        Raises:
            TypeError: anything else.
        """
        if msg is None:
            return b"", None
        if not isinstance(msg, bytes):
            raise TypeError(
                f"{type(msg).__name__} cannot be published here; write events with services.runtime.producer"
            )
        return msg, None

    async def encode_batch(
        self,
        msgs: Sequence[Any],
        serializer: Any = None,
    ) -> list[tuple[bytes, str | None]]:
        """As `encode`, for several."""
        return [await self.encode(msg, serializer) for msg in msgs]


class SkipUnreadable(BaseMiddleware):
    """Observers count and skip what they cannot read; its owner writes the dead letter."""

    skipped: Counter[str] = Counter()

    async def consume_scope(self, call_next: Any, msg: StreamMessage[Any]) -> Any:
        """Run the handler, unless the message is no event."""
        try:
            return await call_next(msg)
        except DecodeError as error:
            self.skipped["unknown" if isinstance(error, UnknownEvent) else "undecodable"] += 1
            log.warning("an observer skips a record: %s", one_line(error))
            return None


def connect(kafka: str, prefix: str, name: str) -> KafkaBroker:
    """A FastStream broker with our codec; `name` is its client id."""
    return KafkaBroker(
        kafka,
        client_id=name,
        codec=EventCodec(prefix),
        middlewares=[SkipUnreadable],
        ack_policy=AckPolicy.MANUAL,
        allow_auto_create_topics=False,
        graceful_timeout=GRACE_S,
        logger=log,
    )


def observe(
    broker: KafkaBroker,
    topic: str,
    handler: Observer,
    *,
    prefix: str = "",
    events: Sequence[type[Event]] = CURRENT,
) -> Any:
    """Give every record of `topic` (without prefix) to `handler`, from the beginning of the log, in order per partition."""
    subscriber = broker.subscriber(
        Topic(prefix + topic, declare=False),
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.MANUAL,
        title=topic,
        description=(handler.__doc__ or "").strip() or None,
    )

    async def deliver(record: Any) -> None:
        await handler(record)

    shown = [Annotated[Any, Shown(event)] for event in events]
    deliver.__annotations__ = {"record": functools.reduce(operator.or_, shown), "return": None}
    return subscriber(deliver)


def pages(broker: KafkaBroker, title: str, version: str) -> bytes:
    """The AsyncAPI document of everything that was registered with `broker`, as JSON."""
    return AsyncAPI(broker, title=title, version=version).to_specification().to_json().encode()


def document() -> bytes:
    """The AsyncAPI document of all topics, for producers and readers in any language."""
    broker = connect("localhost:9092", "", "temper")
    for topic, events in BY_TOPIC.items():
        observe(broker, topic, _described, events=events)
    return pages(broker, "Temper", str(EVENTS_VERSION))


async def _described(record: Record) -> None:
    """Events of this topic, in the envelope of schemas/envelope.py."""


@dataclass(frozen=True)
class Shown:
    """Shows an event's own JSON Schema on AsyncAPI pages; pydantic, which draws them, cannot read msgspec structs."""

    event: type[Event]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """Anything: the codec has decoded and checked the record already."""
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """The struct's schema, its parts laid in place."""
        document = msgspec.json.schema(self.event)
        definitions = document.pop("$defs", {})
        shown = _inline(document, definitions)
        return {**shown, "title": f"{self.event.type_name()} v{self.event.VERSION}"}


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inline(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return {key: _inline(value, definitions) for key, value in schema.items()}
    return [_inline(item, definitions) for item in schema] if isinstance(schema, list) else schema
