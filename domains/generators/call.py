"""Function-call domains. Invariant: the gold answer is the one call wanted; slips cannot be parsed."""

from __future__ import annotations

import random
from typing import Any

from domains.generators.common import EASY, LETTERS, level, name, names, sample
from schemas.tasks import Sample

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
INTEGERS = {"type": "array", "items": {"type": "integer"}}


def _function(called: str, properties: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"name": called, "parameters": schema}


def _spec(
    syntax: str, functions: list[dict[str, Any]], called: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {"syntax": syntax, "functions": functions, "want": [{"name": called, "arguments": arguments}]}


def json_call(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`js ab c=3>` -> `{"name":"ab","arguments":{"c":3}}`; longer names and numbers with the level."""
    step = level(difficulty)
    called, key = name(rng, (2, 2, 3)[step]), rng.choice(LETTERS)
    value = rng.randint(1, 9) if step == EASY else rng.randint(10, 99)
    slips = (
        f'{{"name":"{called}",arguments:{{"{key}":{value}}}}}',
        f'{{"name":"{called}","arguments":{{"{key}":{value}}}',
        f"{called}({key}={value})",
    )
    spec = _spec("json", [_function(called, {key: INTEGER})], called, {key: value})
    return sample(
        difficulty,
        f"js {called} {key}={value}",
        f'{{"name":"{called}","arguments":{{"{key}":{value}}}}}',
        spec,
        slips,
    )


def python_call(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`fn ab c=ef d=3>` -> `ab(c='ef',d=3)`; one to three arguments."""
    step = level(difficulty)
    called, text, more = names(rng, (2, 2, 3)[step], 3)
    keys = rng.sample(LETTERS, step + 1)
    values: list[str | int] = [text, rng.randint(2, 99), more]
    values = values[: step + 1]
    pairs = list(zip(keys, values, strict=True))
    bare = [f"{key}={value}" for key, value in pairs]
    full = [f"{key}='{value}'" if isinstance(value, str) else f"{key}={value}" for key, value in pairs]
    slips = (f"{called}({','.join(bare)})", f"{called} {','.join(full)}", f"{called}({' '.join(full)}")
    properties = {key: STRING if isinstance(value, str) else INTEGER for key, value in pairs}
    spec = _spec("python", [_function(called, properties)], called, dict(pairs))
    return sample(difficulty, f"fn {called} {' '.join(bare)}", f"{called}({','.join(full)})", spec, slips)


def choose(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`home dim ab to 30>` -> `dim(room='ab',to=30)`: the request names one of five functions."""
    step = level(difficulty)
    room, song = names(rng, (2, 3, 4)[step], 2)
    number = rng.randint(10, 99)
    offered = [
        _function("stop", {"room": STRING}),
        _function("lock", {"room": STRING}),
        _function("dim", {"room": STRING, "to": INTEGER}),
        _function("heat", {"room": STRING, "to": INTEGER}),
        _function("play", {"room": STRING, "song": STRING}),
    ]
    called = rng.choice((("stop", "lock"), ("stop", "lock", "dim", "heat"), ("dim", "heat", "play"))[step])
    if called in ("stop", "lock"):
        ask, gold, bare = f"{called} {room}", f"{called}(room='{room}')", f"{called}(room={room})"
        arguments: dict[str, Any] = {"room": room}
    elif called == "play":
        ask, gold = f"play {song} in {room}", f"play(room='{room}',song='{song}')"
        bare, arguments = f"play(room={room},song={song})", {"room": room, "song": song}
    else:
        ask, gold = f"{called} {room} to {number}", f"{called}(room='{room}',to={number})"
        bare, arguments = f"{called}(room={room},to={number})", {"room": room, "to": number}
    return sample(
        difficulty,
        f"home {ask}",
        gold,
        _spec("python", offered, called, arguments),
        (bare, f"{called} {room}"),
    )


def lists(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`fn sum 3 14 5>` -> `sum(v=[3,14,5])`; two to four numbers; slips forget brackets."""
    step = level(difficulty)
    called = rng.choice(("sum", "max", "min", "avg"))
    values = [rng.randint(1, 99) for _ in range((2, 3, 4)[step])]
    inside = ",".join(map(str, values))
    offered = [_function(each, {"v": INTEGERS}) for each in ("sum", "max", "min", "avg")]
    slips = (f"{called}(v={inside})", f"{called}(v=[{inside}]", f"{called} v=[{inside}]")
    spec = _spec("python", offered, called, {"v": values})
    return sample(
        difficulty, f"fn {called} {' '.join(map(str, values))}", f"{called}(v=[{inside}])", spec, slips
    )
