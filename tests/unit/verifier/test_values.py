from __future__ import annotations

import math

import pytest

from services.verifier.values import ValueFormatError, is_plain, parse_json, same


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":2}',
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b"1" * 401,
        b"[" * 40 + b"]" * 40,
        b"\xff",
        b'"\\ud800"',
        b"{} {}",
        b"",
        b"[1,]",
        b'"' + b"x" * 70_000 + b'"',
    ],
)
def test_what_is_not_strict_json_is_refused_in_one_line(raw: bytes) -> None:
    with pytest.raises(ValueFormatError) as caught:
        parse_json(raw)
    assert "\n" not in str(caught.value)


def test_brackets_inside_strings_do_not_nest() -> None:
    assert parse_json('{"a":"' + "[" * 100 + '"}') == {"a": "[" * 100}


def test_equality_is_typed() -> None:
    assert same([1, {"a": None, "b": 2.5}], [1, {"b": 2.5, "a": None}])
    for left, right in [(1, True), (1, 1.0), (0, False), ("1", 1), ([], {}), ([1], [1, 1]), (None, False)]:
        assert not same(left, right)
        assert not same(right, left)
    assert not same(math.nan, math.nan)
    assert not same(math.inf, math.inf)
    assert same(1, 1.0, widen=True)
    assert not same([True], [1.0], widen=True)


def test_tolerance_holds_between_floats_only() -> None:
    assert same(0.1 + 0.2, 0.3, tolerance=1e-9)
    assert not same(0.1 + 0.2, 0.3)
    assert not same(1, 2, tolerance=0.9)


def test_plain_data() -> None:
    assert is_plain({"a": [1, 2.0, None, "x", True]})
    assert not is_plain({1: 2})
    assert not is_plain([math.nan])
    assert not is_plain((1,))
