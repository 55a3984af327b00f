"""What no other reader could take is refused where it comes in, in one line, and never reaches a decision."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.checkpoints import CheckpointPublished
from schemas.envelope import JSON, MSGPACK, ContentType, DecodeError, Envelope, open_envelope
from schemas.events import REGISTRY
from schemas.examples import example
from schemas.heartbeats import WorkerHeartbeat
from schemas.plain import COUNTABLE, fault, whole_fields
from schemas.tasks import QuotaChanged, Task, TaskSubmitted
from services.scheduler.bodies import encode_body
from services.scheduler.handlers import first_stages

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text()
    | st.binary(max_size=4)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=3))
)
KEYS = (
    st.text(max_size=5) | st.integers(0, 9) | st.none() | st.binary(max_size=3) | st.floats(allow_nan=False)
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


def opened(data: bytes, kind: str, content_type: ContentType, version: int = 1) -> Any:
    envelope = Envelope(
        id="e", type=kind, version=version, key="t", occurred_at=0.0, producer="p", data=msgspec.Raw(data)
    )
    return open_envelope(envelope, content_type)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=5), TREES, max_size=3))
def test_a_specification_comes_in_only_if_it_can_be_kept_and_passed_on(spec: dict[str, Any]) -> None:
    task = {"id": "t", "domain": "d", "prompt": "p", "spec": spec}
    try:
        data = msgspec.msgpack.encode({"task": task})
    except (OverflowError, TypeError):
        return  # this writer could not even say it
    try:
        event = opened(data, "TaskSubmitted", MSGPACK)
    except DecodeError:
        return
    kept = msgspec.msgpack.decode(encode_body(event.task), type=Task)
    assert kept == event.task
    assert msgspec.json.decode(msgspec.json.encode(event.task), type=Task) == event.task


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"n": 1000000000000000000000000000000}', "task.spec.n is an integer of more than 64 bits"),
        ('{"a": [{"n": -9223372036854775809}]}', "task.spec.a[0].n is an integer"),
    ],
)
def test_a_number_too_large_to_keep_is_named(text: str, said: str) -> None:
    data = f'{{"task": {{"id": "t", "domain": "d", "prompt": "p", "spec": {text}}}}}'.encode()
    with pytest.raises(DecodeError) as caught:
        opened(data, "TaskSubmitted", JSON)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"a": {1: 2}}, "has a key of type int"),
        ({"a": float("nan")}, "is nan"),
        ({"a": b"x"}, "is of type bytes"),
        ({"a": msgspec.msgpack.Ext(1, b"")}, "is of type Ext"),
    ],
)
def test_what_json_lacks_is_named(spec: dict[str, Any], said: str) -> None:
    assert said in fault(spec, "task.spec")


@pytest.mark.parametrize("kind", [QuotaChanged, CheckpointPublished, WorkerHeartbeat, TaskSubmitted])
def test_whole_numbers_of_inputs_are_looked_at(kind: type[msgspec.Struct]) -> None:
    assert whole_fields(kind) or kind is TaskSubmitted


def test_a_quota_beyond_counting_is_refused() -> None:
    data = msgspec.json.encode({"domain": "d", "nominal": COUNTABLE})
    assert opened(data, "QuotaChanged", JSON).nominal == COUNTABLE
    data = b'{"domain": "d", "nominal": 1000000000000000000000000000000}'
    with pytest.raises(DecodeError, match=r"nominal is 1\.000e\+30"):
        opened(data, "QuotaChanged", JSON)


@pytest.mark.parametrize(
    ("event", "field", "value"),
    [
        ("WorkerHeartbeat", "offsets", {"tasks/0": 1 << 64}),
        ("CreditsGranted", "credits", {"train": [1, -(1 << 70)]}),
        ("SnapshotStored", "offsets", {"tasks/0": 1, "tasks/1": 10**400}),
        ("TrajectoryCompleted", "token_ids", [1, 2, 1 << 53, (1 << 53) + 1]),
        ("TurnCompleted", "token_ids", [1 << 64]),
    ],
)
def test_whole_numbers_in_lists_and_maps_are_looked_at(event: str, field: str, value: Any) -> None:
    """What no encoding carries on would end whoever writes or digests it."""
    good = msgspec.to_builtins(example(REGISTRY[event, 1]))
    opened(msgspec.json.encode(good), event, JSON)
    with pytest.raises(DecodeError, match=rf"{field}\.\*.* is .*; whole numbers go to 2\^53"):
        opened(json.dumps(good | {field: value}).encode(), event, JSON)


def test_every_event_can_be_looked_at() -> None:
    for cls in REGISTRY.values():
        assert isinstance(whole_fields(cls), tuple)


def test_the_largest_a_task_may_say_is_kept() -> None:
    event = TaskSubmitted(task=Task(id="t", domain="d", prompt="p", spec={"n": (1 << 64) - 1}))
    assert fault(event.task.spec, "task.spec") == ""
    assert msgspec.msgpack.decode(encode_body(event.task), type=Task) == event.task


@pytest.mark.parametrize(
    "stages", [["a", "b", "c"], [1, 2, 3], [{"name": "x"}, None, 3], [{"name": None}, {}, []]]
)
def test_stages_of_any_kind_can_be_made_fewer(stages: list[Any]) -> None:
    task = Task(id="t", domain="d", prompt="p", spec={"stages": stages})
    fewer = first_stages(task, 2)
    assert fewer.spec["stages"] == stages[:2]
    assert "first 2 of the 3 stages" in fewer.prompt
