"""The arbitrary input is what it says, and whatever of it can be read can be written again, in every encoding."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from schemas.base import Event
from schemas.envelope import (
    JSON,
    MSGPACK,
    ContentType,
    DecodeError,
    Envelope,
    content_type_of,
    decode,
    encode,
    open_envelope,
)
from schemas.events import BY_TOPIC
from schemas.examples import example
from schemas.plain import whole_fields
from tests.chaos.suite.trees import KEYS, Key, _event, hostile, oddly_keyed, packed, readable

TOPICS = ("tasks", "rewards", "heartbeats", "checkpoints")


def opened(data: bytes) -> Event | None:
    """The event, None if the bytes are none; anything else that is raised is a fault."""
    try:
        return open_envelope(decode(data, None), content_type_of(data))
    except DecodeError:
        return None


@pytest.mark.parametrize("topic", TOPICS)
def test_what_can_be_read_can_be_written_again(topic: str) -> None:
    rng = random.Random(topic)
    found = Counter[str]()
    for _ in range(800):
        data = hostile(rng, topic)
        event = opened(data)
        assert readable(data) == (event is not None)
        found["readable" if event is not None else "unreadable"] += 1
        if event is None:
            continue
        kinds: tuple[ContentType, ...] = (JSON, MSGPACK)
        for kind in kinds:
            again = encode(event, id="x", key="k", occurred_at=1.0, producer="p", content_type=kind)
            assert open_envelope(decode(again, kind), kind) == event
    assert found["unreadable"] > 200
    assert found["readable"] > 20
    assert BY_TOPIC[topic]


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**64, 10**308, -(10**309), 10**4000])
def test_a_whole_number_beyond_all_is_told(number: int) -> None:
    looked = 0
    for topic in TOPICS:
        for event in BY_TOPIC[topic]:
            for path in whole_fields(event):
                if len(path) > 1:
                    continue
                data = msgspec.to_builtins(example(event)) | {path[0]: number}
                envelope = Envelope(
                    id="x",
                    type=event.type_name(),
                    version=event.VERSION,
                    key="k",
                    occurred_at=1.0,
                    producer="p",
                    data=msgspec.Raw(json.dumps(data).encode()),
                )
                with pytest.raises(DecodeError, match=event.type_name()) as told:
                    open_envelope(envelope, JSON)
                assert len(str(told.value)) < 300
                looked += 1
    assert looked >= 10


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_no_text_is_told_or_passed_over(key: str) -> None:
    """Nothing but `DecodeError` is raised for any, and where the field is open to its writer it is never taken."""
    rng = random.Random(key)
    for topic in TOPICS:
        for _ in range(60):
            whole, _ = _event(rng, topic)
            opened(oddly_keyed(rng, whole, key))
    if key == "twice":
        return
    whole = dict(_of("tasks", "TaskSubmitted"))
    task = whole["data"]["task"]
    assert opened(packed(whole)) is not None, "the event itself is sound"
    specs: tuple[dict[Any, Any], ...] = (
        {KEYS[key]: 1},
        {"a": {KEYS[key]: 1}},
        {"a": [{"b": {KEYS[key]: {}}}]},
    )
    for spec in specs:
        task["spec"] = spec
        assert opened(packed(whole)) is None


def _of(topic: str, name: str) -> dict[str, Any]:
    rng = random.Random(1)
    return next(whole for whole, _ in (_event(rng, topic) for _ in range(1000)) if whole["type"] == name)


def test_packed_is_messagepack() -> None:
    tree = {"a": [1, 2.5, None, {"b": "x" * 300}], "c": {}, "d": True, "e": list(range(40))}
    assert msgspec.msgpack.decode(packed(tree)) == tree
    assert msgspec.msgpack.decode(packed({Key(b"\x07"): 1})) == {7: 1}


def test_the_input_follows_from_the_random_numbers() -> None:
    one, two = random.Random(5), random.Random(5)
    assert [hostile(one, "tasks") for _ in range(50)] == [hostile(two, "tasks") for _ in range(50)]
