"""The exported contract: today's code reads all historic bytes, and changes only by addition."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import export as exported
from schemas.base import Event
from schemas.compat import incompatibilities
from schemas.envelope import JSON, MSGPACK, decode, open_envelope
from schemas.events import BY_TOPIC, CURRENT, REGISTRY
from schemas.examples import example
from schemas.topics import all_topics

Edit = Callable[[dict[str, Any]], object]
GOLDEN = sorted((exported.HERE / "golden").iterdir())
HINT = "run `python -m schemas.export`"


def test_no_incompatible_change() -> None:
    assert list(exported.broken()) == []


def test_exported_files_are_current() -> None:
    for name, content in exported.schema_files().items():
        assert (exported.HERE / "jsonschema" / name).read_bytes() == content, f"{name} is stale; {HINT}"
    there = {path.read_bytes() for path in GOLDEN}
    for name, content in exported.golden_files().items():
        assert content in there, f"golden bytes of today's {name} are missing; {HINT}"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_every_golden_file_decodes_with_every_field_kept(path: Path) -> None:
    raw = path.read_bytes()
    content_type: Any = JSON if path.suffix == ".json" else MSGPACK
    envelope = decode(raw)
    assert envelope == decode(raw, content_type)
    event = open_envelope(envelope, content_type)
    assert path.name.startswith(f"{envelope.type}.v{envelope.version}.")
    then = (msgspec.json if content_type == JSON else msgspec.msgpack).decode(envelope.data)
    assert_contains(msgspec.to_builtins(event), then, path.name)


def assert_contains(now: object, then: object, where: str) -> None:
    if isinstance(then, dict):
        assert isinstance(now, dict), where
        for key, value in then.items():
            assert key in now, f"{where}.{key} was lost"
            assert_contains(now[key], value, f"{where}.{key}")
    elif isinstance(then, list):
        assert isinstance(now, list | tuple), where
        assert len(now) == len(then), where
        for index, value in enumerate(then):
            assert_contains(now[index], value, f"{where}[{index}]")
    else:
        assert now == then, where


@pytest.mark.parametrize("event", CURRENT, ids=lambda event: event.__name__)
def test_example_sets_every_field_and_survives_both_encodings(event: type[Event]) -> None:
    full = example(event)
    for content_type in (JSON, MSGPACK):
        raw = exported.golden_bytes(full, content_type)
        assert open_envelope(decode(raw), content_type) == full
    for field in msgspec.structs.fields(event):
        if field.default is not msgspec.NODEFAULT:
            assert getattr(full, field.name) != field.default, (
                f"{event.__name__}.{field.name} shows its default only"
            )


def test_registry_names_each_event_once() -> None:
    assert len(REGISTRY) >= len(CURRENT) == len({event.type_name() for event in CURRENT})


def schema() -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(exported.schema_files()["TaskSubmitted.v1.json"])
    return document


def changed(edit: Edit) -> list[str]:
    new = copy.deepcopy(schema())
    edit(new["$defs"])
    return incompatibilities(schema(), new)


def test_addition_is_compatible() -> None:
    def edit(defs: dict[str, Any]) -> None:
        defs["Task"]["properties"]["colour"] = {"type": "string", "default": ""}
        defs["Task"]["properties"]["purpose"]["enum"].append("probe")
        defs["Task"]["properties"]["difficulty"].pop("maximum")

    assert changed(edit) == []


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda defs: defs["Task"]["properties"].pop("prompt"), "prompt: field removed"),
        (lambda defs: defs["Task"]["required"].append("batch"), "batch: field is required now"),
        (
            lambda defs: defs["Task"]["properties"]["prompt"].update(type="integer"),
            "type string became integer",
        ),
        (lambda defs: defs["Task"]["properties"]["purpose"]["enum"].remove("eval"), "value 'eval' removed"),
        (
            lambda defs: defs["Task"]["properties"]["difficulty"].update(maximum=0.5),
            "maximum was 1.0, is 0.5",
        ),
        (lambda defs: defs["Task"]["properties"]["id"].update(maxLength=8), "maxLength was 128, is 8"),
        (lambda defs: defs["Task"]["properties"]["domain"].update(pattern="^x$"), "pattern became"),
        (lambda defs: defs["Task"]["properties"]["policy"]["anyOf"].remove({"type": "null"}), "narrowed"),
        (lambda defs: defs["Sampling"]["properties"].pop("top_p"), "top_p: field removed"),
    ],
)
def test_narrowing_is_reported(edit: Edit, words: str) -> None:
    problems = changed(edit)
    assert any(words in problem for problem in problems), problems


def test_export_refuses_an_incompatible_change_and_keeps_old_bytes(tmp_path: Path) -> None:
    exported.export(tmp_path)
    assert exported.export(tmp_path) == []
    path = tmp_path / "jsonschema" / "TaskCancelled.v1.json"
    document = msgspec.json.decode(path.read_bytes())
    document["$defs"]["TaskCancelled"]["properties"]["gone"] = {"type": "string"}
    path.write_bytes(msgspec.json.encode(document))
    with pytest.raises(ValueError, match="gone: field removed"):
        exported.export(tmp_path)
    old = tmp_path / "golden" / "TaskCancelled.v1.json"
    old.write_bytes(b"bytes of last year")
    path.unlink()
    assert set(exported.export(tmp_path)) == {"TaskCancelled.v1.json", "TaskCancelled.v1.1.json"}
    assert old.read_bytes() == b"bytes of last year"


def test_every_event_has_its_topic_and_every_topic_its_events() -> None:
    assert sorted(event.type_name() for events in BY_TOPIC.values() for event in events) == sorted(
        event.type_name() for event in CURRENT
    )
    assert set(BY_TOPIC) == {
        topic.name for topic in all_topics(("standard",)) if not topic.name.endswith(".dlq")
    }
