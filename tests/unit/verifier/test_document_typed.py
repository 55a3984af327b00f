"""Typed fields with their options: what is the same value, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.families import document, edit, typed
from services.verifier.specs import SpecError


def right(field: dict[str, Any], value: Any, **settings: Any) -> float:
    typed.check(field, "f", settings)
    return typed.read(field, settings).closeness(value)


@pytest.mark.parametrize(
    ("field", "same", "other"),
    [
        (
            {"type": "number", "want": 1234.5, "locale": "comma"},
            ["1.234,5", "1234,50 €", 1234.5],
            ["1,234.5", "12.34,5"],
        ),
        (
            {"type": "number", "want": 1234, "locale": "point"},
            ["1,234", "1234.0", "+1234"],
            ["1.234", "12,34", "1,2345"],
        ),
        ({"type": "number", "want": 100, "tolerance": 0.5}, ["100.5", 99.5], [100.51, "nan"]),
        ({"type": "number", "want": -200, "relative": 0.01}, [-202, "-198"], [-202.1, 200]),
        ({"type": "number", "want": 0, "relative": 0.5}, [0, "0.0"], [0.0001]),
        ({"type": "number", "want": 3, "also": [4, "5.5"]}, [3, "4", 5.5], [3.5]),
        (
            {"type": "date", "want": "2024-05-14", "order": "mdy"},
            ["05/14/2024", "14 May 2024"],
            ["14/05/2024"],
        ),
        (
            {"type": "date", "want": "2024-05-14", "forms": "wide"},
            [
                "Tue, 14th of May 2024",
                "20240514",
                "2024-05-14T23:59:59Z",
                "Tuesday 14 May 2024",
                "May 14th, 2024",
            ],
            ["14 May 24", "2024-05-14 or 15", "Tue 14", "May 14th 2024 x", "2024514"],
        ),
        ({"type": "id", "want": "AB-007"}, ["ab-007", " AB-00 7 "], ["AB-7", "AB007", 7]),
        ({"type": "id", "want": "ab", "case": True}, ["a b"], ["AB"]),
        ({"type": "id", "want": "0042"}, ["0042"], [42, "42"]),
        ({"type": "boolean", "want": True}, [True, "yes", "TRUE", "1"], [1, 1.0, "true!", False, "no", None]),
        ({"type": "boolean", "want": "no"}, [False, "0"], [True, 0, ""]),
        (
            {"type": "money", "want": "12.50 EUR"},
            [
                "€12.50",
                "12,50 eur",
                "EUR 12.5",
                {"amount": 12.5, "currency": "€"},
                {"amount": "12.50", "currency": "EUR"},
            ],
            [
                "12.50",
                "$12.50",
                "€12.50 EUR",
                {"amount": 12.5},
                {"amount": 12.5, "currency": "EUR", "x": 1},
                12.5,
            ],
        ),
        ({"type": "money", "want": "1234 JPY", "locale": "point"}, ["¥1,234"], ["¥1.234"]),
        ({"type": "text", "want": "Grün & Co"}, ["GRÜN  & co", "Gru\u0308n & Co"], ["Grun & Co", None, True]),
        ({"type": "enum", "want": "eur", "values": ["eur", "usd"]}, ["EUR"], ["euro"]),
        ({"type": "text", "want": None}, [None], ["", "null", 0, False]),
    ],
)
def test_spellings(field: dict[str, Any], same: list[Any], other: list[Any]) -> None:
    assert [right(field, value) for value in same] == [1.0] * len(same)
    assert [right(field, value) for value in other] == [0.0] * len(other)


def test_default_forms_of_a_date_stay_narrow() -> None:
    assert right({"type": "date", "want": "2024-05-14"}, "14th May 2024") == 0.0


def test_a_partial_text_takes_the_best_of_its_values() -> None:
    field = {"type": "text", "want": "abcd", "also": ["wxyz"], "partial": True}
    assert right(field, "wxyq") == pytest.approx(0.75)
    assert right({"type": "text", "want": "abcd"}, "abcx", partial=True) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"type": "number", "want": "x"}, "is no number"),
        ({"type": "number", "want": 1, "tolerance": -1}, "f.tolerance"),
        ({"type": "number", "want": 1, "tolerance": float("nan")}, "f.tolerance"),
        ({"type": "number", "want": 1, "locale": "de"}, "f.locale"),
        ({"type": "number", "want": 1, "partial": True}, "unknown key 'partial'"),
        ({"type": "money", "want": "12.50"}, "is no money"),
        ({"type": "boolean", "want": 2}, "is no boolean"),
        ({"type": "id", "want": "a", "case": 1}, "f.case"),
        ({"type": "date", "want": "2024-05-14", "order": "ymd"}, "f.order"),
        ({"type": "date", "want": "2024-05-14", "forms": "all"}, "f.forms"),
        ({"type": "text", "want": "a", "also": [[1]]}, "also holds"),
        ({"type": "text", "want": None, "also": ["a"]}, "f.also"),
        ({"type": "colour", "want": "a"}, "f.type"),
    ],
)
def test_a_broken_field_is_named(field: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        typed.check(field, "f", {})
    assert said in str(caught.value)


def plain_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (char != other))
    return row[-1]


@settings(max_examples=300, deadline=None)
@given(st.text("abc ü", max_size=80), st.text("abc ü", max_size=80))
def test_the_distance_is_that_of_the_textbook(a: str, b: str) -> None:
    assert edit.distance(a, b) == plain_distance(a, b) == edit.distance(b, a)
    assert 0.0 <= edit.anls(a, b) <= 1.0
    assert (edit.anls(a, b) == 1.0) == (a == b)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(typed.TYPES),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
)
def test_any_value_is_right_or_wrong_for_any_type(kind: str, value: Any) -> None:
    wants = {
        "number": 5,
        "date": "2024-05-14",
        "boolean": True,
        "money": "5 EUR",
        "text": "x",
        "enum": "x",
        "id": "x",
    }
    assert right({"type": kind, "want": wants[kind]}, value, partial=True) in {0.0, 1.0}


def test_value_syntax_takes_the_new_types(make_task: Any, limits: Any, scripted: Any) -> None:
    spec = {"syntax": "value", "fields": {"a": {"type": "money", "want": "3 USD"}}}
    document.check_spec(spec, {})
    assert document.verify(make_task(spec), {}, limits, b"$3.00\n", scripted()).passed
    assert document.verify(make_task(spec), {}, limits, b"$3.00 or $4.00", scripted()).score == 0.0
