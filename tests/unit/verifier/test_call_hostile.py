"""Whatever an answer holds, a verdict of the call family is a finite score or `invalid`, in bounded time, never our fault."""

from __future__ import annotations

import json
import math
import time
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cards import parse_card
from schemas.tasks import Task
from services.verifier.engine import judge
from services.verifier.jail import Jail

CARD = parse_card(
    'name = "t.call"\nlayer = "tool"\nsummary = "s"\ngenerator = "a:b"\n[verifier]\nfamily = "call"\n', "card"
)
ANYTHING: dict[str, Any] = {
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {
            "a": {"type": "number", "multipleOf": 0.5, "minimum": -10},
            "b": {"type": "string", "pattern": "^(x+x+)+y$"},
            "c": {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "uniqueItems": True,
            },
            "d": {"type": "object", "additionalProperties": {"type": "array"}},
        },
    },
}
WANT = [
    {"name": "f", "arguments": {"a": 1.5, "c": [1, "x"]}},
    {"name": "f", "accept": {"b": ["xxy"], "d": {"any": [{"value": {}}], "optional": True}}},
]
STEPS = {
    "f": [{"op": "set", "path": ["x", {"arg": "b", "default": "k"}], "value": {"arg": "c", "default": 0}}]
}
SPECS: dict[str, dict[str, Any]] = {
    "json": {"syntax": "json", "functions": [ANYTHING], "want": WANT},
    "python": {"syntax": "python", "functions": [ANYTHING], "want": WANT, "text": "loose"},
    "none": {"syntax": "json", "functions": [ANYTHING], "want": [], "decline": ["no"]},
    "turns": {
        "syntax": "json",
        "functions": [ANYTHING],
        "api": {"state": {"x": {}}, "functions": STEPS},
        "turns": [{"want": [{"name": "f", "arguments": {"c": [1]}}]}],
    },
}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=12,
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["f", "g", ""]),
            "arguments": st.dictionaries(st.sampled_from("abcde"), PLAIN, max_size=4),
        }
    ),
    max_size=4,
)


def verdict(kind: str, answer: str | bytes) -> Any:
    raw = answer if isinstance(answer, bytes) else answer.encode("utf-8", "surrogatepass")
    return judge(
        Task(id="t", domain="t.call", prompt="p", spec=SPECS[kind]), CARD, raw, cast("Jail", None), 1 << 25
    )


def sound(made: Any) -> None:
    assert made.outcome in {"scored", "invalid"}, made.evidence
    assert math.isfinite(made.score)
    assert 0.0 <= made.score <= 1.0
    assert made.passed == (made.score == 1.0)


@pytest.mark.parametrize("kind", sorted(SPECS))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=CALLS | PLAIN, raw=st.text(max_size=40))
def test_any_answer_has_a_sound_verdict(kind: str, made: Any, raw: str) -> None:
    sound(verdict(kind, json.dumps(made)))
    sound(verdict(kind, json.dumps([made])))
    sound(verdict(kind, repr(made)))
    sound(verdict(kind, raw))


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(2)), CALLS)
def test_the_order_of_given_calls_changes_nothing(order: list[int], more: Any) -> None:
    calls = [
        {"name": "f", "arguments": {"a": 1.5, "c": [1, "x"]}},
        {"name": "f", "arguments": {"b": "xxy"}},
        *more,
    ]
    first = verdict("json", json.dumps(calls)).score
    assert verdict(
        "json", json.dumps([calls[i] for i in order] + list(reversed(calls[2:])))
    ).score == pytest.approx(first)
    assert verdict("json", json.dumps(calls[:2])).passed


def call(**arguments: str) -> str:
    inside = ",".join(f'"{name}":{value}' for name, value in arguments.items())
    return f'[{{"name":"f","arguments":{{{inside}}}}}]'


DEEP = 100_000
HOSTILE: dict[str, str | bytes] = {
    "brackets": "[" * DEEP,
    "closed brackets": "[" * DEEP + "]" * DEEP,
    "objects": '{"a":' * DEEP,
    "nested value": call(c="[" * DEEP + "]" * DEEP),
    "long text": call(b='"' + "x" * 10_000_000 + '"'),
    "plain 10 MB": "x" * 10_000_000,
    "catastrophe": call(b='"' + "x" * 15_000 + '"'),
    "surrogate": call(b='"\\ud800"'),
    "raw surrogate": b'[{"name":"\xed\xa0\x80"}]',
    "huge exponent": call(a="1e999999"),
    "huge digits": call(a="1" * DEEP),
    "400 digits": call(a="1" * 400),
    "400 digits real": call(a="1" * 300 + ".5"),
    "NaN": call(a="NaN"),
    "Infinity": call(a="-Infinity"),
    "duplicate": '[{"name":"f","name":"f","arguments":{}}]',
    "many calls": "[" + ",".join([call()[1:-1]] * 2000) + "]",
    "many items": call(c="[" + ",".join(map(str, range(3000))) + "]"),
    "many objects": call(c="[" + ",".join(f'{{"a":{n}}}' for n in range(1400)) + "]"),
    "many keys": call(d="{" + ",".join(f'"{n}":0' for n in range(1500)) + "}"),
    "python dots": "f" + ".f" * 8000 + "()",
    "python lambda": "lambda:" * 2300 + "0",
    "python ternary": "0 if 0 else " * 1300 + "0",
    "python calls": "f(a=" * 3000,
    "python not": "not " * 4000 + "0",
    "python digits": "f(a=" + "9" * 16_000 + ")",
    "python hex": "f(a=0x" + "f" * 16_000 + ")",
    "python exponent": "f(a=1e999999)",
    "python power": "f(a=9**9**9)",
    "python walrus": "(a:=" * 14 + "0" + ")" * 14,
    "python null": "f(a=\0)",
    "python surrogate": "f(b='\\ud800')",
    "python escape": "f(b='\\d')",
    "python format": "f(b=f'{f()}')",
    "python laughs": "f(c=[" + ",".join(["'lol'"] * 2500) + "])",
    "python await": "await " * 2500 + "0",
    "python strings": "f(b=" + "''" * 8000 + ")",
    "byte order": "\ufeff[]",
    "direction": "\u202e[]",
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize("kind", sorted(SPECS))
def test_hostile_answers_are_cheap_and_worth_little(name: str, kind: str) -> None:
    started = time.process_time()
    made = verdict(kind, HOSTILE[name])
    assert time.process_time() - started < 5.0
    sound(made)
    assert not made.passed
    assert made.score < 0.6
    assert verdict(kind, HOSTILE[name]).digest == made.digest
