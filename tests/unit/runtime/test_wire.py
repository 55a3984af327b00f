from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest

from schemas.envelope import JSON, MSGPACK, ContentType, DecodeError, UnknownEvent
from schemas.tasks import DomainPaused
from services.runtime.wire import content_type_for, pack, unpack

EVENT = DomainPaused(domain="code.lists", reason="maintenance")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Raw:
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    key: bytes | None = b"k"
    topic: str = "p.tasks"
    partition: int = 2
    offset: int = 7
    timestamp: int = 123


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize("with_headers", [True, False])
def test_round_trip(content_type: ContentType, *, with_headers: bool) -> None:
    value, headers = pack(
        EVENT, id="i", key="k", occurred_at=1.5, producer="me", traceparent=TRACE, content_type=content_type
    )
    assert dict(headers) == {
        "type": b"DomainPaused",
        "schema": b"1",
        "content-type": content_type.encode(),
        "traceparent": TRACE.encode(),
    }
    record = unpack(Raw(value, headers if with_headers else ()), "p.")
    assert record.event == EVENT
    assert (record.topic, record.partition, record.offset, record.timestamp_ms, record.key) == (
        "tasks",
        2,
        7,
        123,
        "k",
    )
    assert record.envelope.traceparent == TRACE
    assert record.redelivered == 0


def test_tasks_are_json_the_rest_is_not() -> None:
    assert content_type_for("tasks") == JSON
    assert content_type_for("trajectories") == MSGPACK


def test_outside_producer_may_leave_context_and_key_out() -> None:
    value = b'{"id":"i","type":"DomainPaused","key":"e","occurred_at":1,"producer":"x","data":{"domain":"d"}}'
    record = unpack(
        Raw(
            value,
            [("traceparent", TRACE.encode()), ("content-type", b"application/json; charset=utf-8")],
            None,
        ),
        "p.",
    )
    assert record.envelope.traceparent == TRACE
    assert record.key == "e"


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (None, []),
        (b"", []),
        (b"\xff\xfe", []),
        (b"{", []),
        (b"[" * 100_000, [("content-type", b"application/json")]),
        (pack(EVENT, id="i", key="k", occurred_at=1.0, producer="p")[0], [("content-type", b"text/plain")]),
        (
            pack(EVENT, id="i", key="k", occurred_at=1.0, producer="p")[0],
            [("content-type", b"application/json")],
        ),
        (b'{"id":"i","type":"DomainPaused","key":"\xff","occurred_at":1,"producer":"x","data":{}}', []),
        (
            b'{"id":"i","type":"DomainPaused","key":"k","occurred_at":1,"producer":"x","data":{"domain":3}}',
            [],
        ),
    ],
)
def test_anything_else_is_a_decode_error(value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
    with pytest.raises(DecodeError):
        unpack(Raw(value, headers), "p.")


def test_unknown_event_is_told_apart() -> None:
    value = msgspec.json.encode(
        {"id": "i", "type": "New", "version": 4, "key": "k", "occurred_at": 1, "producer": "x", "data": {}}
    )
    with pytest.raises(UnknownEvent, match="unknown event New version 4"):
        unpack(Raw(value), "p.")
