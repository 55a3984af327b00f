"""Arbitrary input. Invariant: it follows from the random numbers given, and names nothing that the site works on.

Whole records that are no event, and events of every type of a topic with one field, or the envelope's, of a wrong kind.
"""

from __future__ import annotations

import json
import random
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


def hostile(rng: random.Random, topic: str) -> bytes:
    """One record for a topic."""
    kind = rng.randrange(6)
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
    place = whole if kind == 3 else inner
    field = rng.choice(sorted(place))
    if rng.random() < 0.2:
        del place[field]
    else:
        place[field] = rng.choice(ODD) if rng.random() < 0.7 else tree(rng)
    return json.dumps(whole).encode("utf-8", "surrogatepass")


def readable(data: bytes) -> bool:
    """Whether the bytes are an event."""
    try:
        open_envelope(decode(data, None), content_type_of(data))
    except DecodeError:
        return False
    return True
