"""Arbitrary input. Invariant: it follows from the random numbers given, and names nothing that the site works on.

Whole records that are no event, and events of every type of a topic with one field, or the envelope's, of a wrong kind; in
JSON, and in MessagePack, whose maps may have keys that no other encoding knows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from schemas.envelope import DecodeError, content_type_of, decode, open_envelope
from schemas.events import BY_TOPIC
from schemas.examples import example

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 2**64, -(2**80), 10**400, 1.5, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "\x00", "\ud7ff\U0010ffff", "x" * 5000, [], {}, [[]], {"": {}}, {"a": [None, {"b": []}]}, [0] * 5000),
)  # fmt: skip
DEPTHS = (3, 60, 900, 20_000)


def tree(rng: random.Random, depth: int = 5) -> Any:
    """A value of JSON, some levels deep."""
    kind = rng.randrange(4) if depth else 0
    if kind == 1:
        return [tree(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind >= 2:
        return {
            rng.choice(("id", "type", "data", "\x00", "", "x" * 99)): tree(rng, depth - 1) for _ in range(3)
        }
    return rng.choice(ODD)


class Key(bytes):
    """A key of a map as its bytes in MessagePack."""


KEYS: dict[str, Key] = {
    "int": Key(b"\x07"),
    "negative": Key(b"\xff"),
    "64 bits": Key(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
    "null": Key(b"\xc0"),
    "bool": Key(b"\xc3"),
    "float": Key(b"\xcb\x3f\xf8" + bytes(6)),
    "not a number": Key(b"\xca\x7f\xc0\x00\x00"),
    "bytes": Key(b"\xc4\x02id"),
    "array": Key(b"\x92\x01\xa1a"),
    "nested arrays": Key(b"\x91\x92\x91\x01\xc4\x01a"),
    "map": Key(b"\x81\xa1a\x01"),
    "map in an array": Key(b"\x91\x81\x01\x02"),
    "extension": Key(b"\xd4\x05\x01"),
    "time": Key(b"\xd6\xff\x00\x00\x00\x01"),
    "broken text": Key(b"\xa1\xff"),
    "deep arrays": Key(b"\x91" * 900 + b"\x01"),
    "very deep arrays": Key(b"\x91" * 20_000 + b"\x01"),
    "twice": Key(b"\xa2id"),
}
"""Keys that are no text, or no text that may stand there."""


def packed(value: Any) -> bytes:
    """MessagePack of a tree, whose maps may have a `Key` among their keys."""
    if isinstance(value, dict):
        pairs = [
            (key if isinstance(key, Key) else msgspec.msgpack.encode(key)) + packed(item)
            for key, item in value.items()
        ]
        return b"\xdf" + len(pairs).to_bytes(4, "big") + b"".join(pairs)
    if isinstance(value, list | tuple):
        return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(packed, value))
    return msgspec.msgpack.encode(value)


def hostile(rng: random.Random, topic: str) -> bytes:
    """One record for a topic."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(
            [b"", b"\xff\xfe", b"{", rng.randbytes(200), b"\x81\x01\x02", b"\xc1", b"\xdf\xff\xff\xff\xff"]
        )
    if kind == 1:
        count = rng.choice(DEPTHS)
        return rng.choice(
            [b"[" * count + b"]" * count, b'{"a":' * count + b"1" + b"}" * count, b"\x91" * count + b"\xc0"]
        )
    if kind == 2:
        return json.dumps(tree(rng)).encode("utf-8", "surrogatepass")
    whole, inner = _event(rng, topic)
    if kind >= 6:
        return oddly_keyed(rng, whole, rng.choice(sorted(KEYS)))
    place = whole if kind == 3 else inner
    field = rng.choice(sorted(place))
    if rng.random() < 0.2:
        del place[field]
    else:
        place[field] = rng.choice(ODD) if rng.random() < 0.7 else tree(rng)
    return json.dumps(whole).encode("utf-8", "surrogatepass")


def _event(rng: random.Random, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A sound event of a topic in its envelope, as a tree; and one of the objects in it."""
    event = rng.choice(BY_TOPIC[topic])
    data = msgspec.to_builtins(example(event))
    whole: dict[str, Any] = {
        "id": f"odd-{rng.random()}",
        "type": event.type_name(),
        "version": event.VERSION,
        "key": "odd",
        "occurred_at": 1.0,
        "producer": "odd",
        "data": data,
    }
    inner = data
    while (
        nested := [value for value in inner.values() if isinstance(value, dict) and value]
    ) and rng.random() < 0.5:
        inner = rng.choice(nested)
    return whole, inner


def oddly_keyed(rng: random.Random, whole: dict[str, Any], key: str) -> bytes:
    """An event in MessagePack, one map of which, at any depth, has one more pair with that key."""
    maps = list(_maps(whole))
    place = rng.choice(maps)
    value: Any = rng.choice(("x", 1, {}, [0]))
    if rng.random() < 0.3:  # one level further down, where what is open to the writer has its own objects
        place["x"] = {KEYS[key]: value}
    else:
        place[KEYS[key]] = value
    return packed(whole)


def _maps(value: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _maps(item)
    elif isinstance(value, list):
        for item in value:
            yield from _maps(item)


def readable(data: bytes) -> bool:
    """Whether the bytes are an event."""
    try:
        open_envelope(decode(data, None), content_type_of(data))
    except DecodeError:
        return False
    return True
