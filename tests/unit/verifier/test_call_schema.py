"""The JSON Schema dialect and its linear pattern engine."""

from __future__ import annotations

import random
import re
import time
from typing import Any

import pytest

from services.verifier.families import dialect, schema
from services.verifier.families.linear import PatternError, compiled
from services.verifier.specs import SpecError


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("given", "right", "wrong"),
    [
        ({"enum": ["a", 1]}, ["a", 1], ["b", True, "1"]),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, [[[1], []]], [[1], [["1"]]]),
        ({"type": "array", "uniqueItems": True}, [[1, "1", True, [1], {"a": 1}]], [[1, 1.0], [{"a": [1]}, {"a": [1]}]]),
        ({"multipleOf": 0.1}, [0.3, 2, 10**300], [0.35]),
        ({"multipleOf": 3}, [9, 3 * 10**399], [10**399]),
        ({"pattern": "^[a-z]+$"}, ["abc"], ["abC", "abc\n", ""]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "20240229", "soon"]),
        ({"format": "date-time"}, ["2024-02-29T10:00:00Z"], ["2024-02-29T10:00:00", "2024-02-29"]),
        ({"format": "email"}, ["a@b.c"], ["a@b@c", "@b", "a b@c"]),
        ({"format": "ipv4"}, ["10.0.0.1"], ["10.0.0.256", "::1"]),
        ({"format": "uuid"}, ["12345678-1234-5678-1234-567812345678"], ["x", "{12345678123456781234567812345678}"]),
        ({"format": "uri"}, ["https://a.b/c"], ["a b", "/only/path"]),
        ({"format": "hostname"}, ["a-b.example"], ["-a.b", "a..b", "x" * 64]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, [1, None], ["1"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}]),
        ({"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False},
         [{"n_a": 1}], [{"n_a": "1"}, {"m": 1}]),
        ({"type": "object", "properties": {"a": {"type": "object", "required": ["b"]}}}, [{"a": {"b": 1}}], [{"a": {}}]),
    ],
)  # fmt: skip
def test_constraints_hold_at_any_depth(given: dict[str, Any], right: list[Any], wrong: list[Any]) -> None:
    schema.check(of(p=given), "s")
    for value in right:
        assert schema.faults(of(p=given), {"p": value}) == {}, value
    for value in wrong:
        assert list(schema.faults(of(p=given), {"p": value})) == ["p"], value


def test_local_references_are_put_in_place() -> None:
    given = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/pair"}},
        "$defs": {"pair": {"type": "array", "items": {"$ref": "#/$defs/n"}}, "n": {"type": "integer"}},
    }
    schema.check(given, "s")
    assert schema.faults(given, {"a": [1, 2]}) == {}
    assert schema.faults(given, {"a": ["1"]})
    assert schema.inlined(given)["properties"]["a"]["items"] == {"type": "integer"}


def test_a_parameter_may_be_called_like_a_keyword() -> None:
    given = of(**{"$ref": {"type": "integer"}, "pattern": {"type": "string"}, "unknown": {}})
    schema.check(given, "s")
    assert schema.faults(given, {"$ref": 1, "pattern": "(", "unknown": 0}) == {}


def doubling(levels: int) -> dict[str, Any]:
    defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "$defs": defs | {f"d{levels}": {}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (of(a={"$ref": "https://example.org/s.json"}), "nothing is fetched"),
        (of(a={"$ref": "#/properties/a"}), "only #/$defs/NAME"),
        (of(a={"$ref": "#/$defs/no"}), "names nothing"),
        (
            {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, **of(a={"$ref": "#/$defs/a"})},
            "leads back to itself",
        ),
        (doubling(24), "more than 2000 sub-schemas"),
        (of(a={"maximun": 3}), "unknown keyword 'maximun'"),
        (of(a={"unevaluatedProperties": False}), "unknown keyword"),
        (of(a={"format": "moon"}), "format is 'moon'"),
        (of(a={"format": ["date"]}), "format is"),
        (of(a={"pattern": "(a)\\1"}), "\\1 is not supported"),
        (of(a={"pattern": "(?=a)"}), "only (?:...)"),
        (of(a={"type": "no such type"}), "no JSON Schema"),
        (of(a={"multipleOf": 0}), "no JSON Schema"),
        (of(a={"allOf": {}}), "must be a list"),
        ({"properties": []}, "must be a table"),
    ],
)
def test_what_is_not_checked_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        schema.check(given, "s")
    assert said in str(caught.value).replace("\\\\", "\\")


def _pattern(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 3 or kind < 0.4:
        return rng.choice(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\.", r"[\w-]", "[a-c1]", r"\x61"])
    if kind < 0.6:
        return _pattern(rng, depth + 1) + _pattern(rng, depth + 1)
    if kind < 0.75:
        return f"({_pattern(rng, depth + 1)}|{_pattern(rng, depth + 1)})"
    if kind < 0.8:
        return "(?:)"
    return f"({_pattern(rng, depth + 1)})" + rng.choice(
        ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{0}"]
    )


def test_patterns_mean_what_the_standard_engine_says() -> None:
    rng = random.Random(5)
    for _ in range(1500):
        made = _pattern(rng)
        made = rng.choice([made, f"^{made}", f"{made}$", f"^{made}$", f"^{made}|{_pattern(rng)}$"])
        ours, theirs = compiled(made), re.compile(made, re.ASCII)
        for _ in range(5):
            text = "".join(rng.choice("abc1.-") for _ in range(rng.randint(0, 7)))
            assert ours.search(text) == bool(theirs.search(text)), (made, text)


@pytest.mark.parametrize(
    "given", ["^(a+)+$", "(a|aa)+$", "^(a|a?)+$", r"^(\w+\s?)*$", "(a*)*b", "^(([a-z])+.)+[A-Z]$"]
)
def test_catastrophic_patterns_take_linear_time(given: str) -> None:
    started = time.process_time()
    compiled(given).search("a" * 16_000 + "!")
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize(
    "given",
    ["(", ")", "a)", "[a", "a**", "*a", "a{2,1}", "a{999}", "a{x", r"\b", r"\p{L}", "(?i)a", "a^", "a$b", "(a$)", "a++",
     "[b-a]", r"[\d-z", "x" * 1001, "(" * 33 + ")" * 33, "(a{200}){200}", "((((((){256}){256}){256}){256}){256}){256}"],
)  # fmt: skip
def test_patterns_beyond_the_engine_are_refused_at_once(given: str) -> None:
    started = time.process_time()
    with pytest.raises(PatternError):
        compiled(given)
    assert time.process_time() - started < 1.0


def test_many_distinct_objects_are_told_apart_in_linear_time() -> None:
    started = time.process_time()
    assert list(dialect.distinct(None, "true", [{"a": n} for n in range(20_000)], None)) == []
    assert time.process_time() - started < 2.0
