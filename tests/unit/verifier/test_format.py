from __future__ import annotations

from typing import Any

import pytest

from services.verifier.answers import UnusableAnswerError
from services.verifier.families import format as family
from services.verifier.families.constraints import plain
from services.verifier.specs import SpecError


def score(text: str, *constraints: dict[str, Any], make_task: Any, limits: Any, scripted: Any) -> float:
    spec = {"constraints": list(constraints)}
    family.check_spec(spec, {})
    value = family.verify(make_task(spec), {}, limits, text.encode(), scripted()).score
    assert value is not None
    return value


CASES: list[tuple[dict[str, Any], str, float]] = [
    ({"id": "keywords:existence", "words": ["ab", "cd"]}, "AB x", 0.5),
    ({"id": "keywords:existence", "words": ["ab"]}, "abc", 0.0),
    ({"id": "keywords:frequency", "word": "ab", "count": 2}, "ab ab", 1.0),
    ({"id": "keywords:frequency", "word": "ab", "count": 2}, "ab", 0.5),
    ({"id": "keywords:frequency", "word": "ab", "count": 0}, "x", 1.0),
    ({"id": "keywords:forbidden", "words": ["ab", "cd"]}, "cd e", 0.5),
    ({"id": "length:words", "count": 4}, "one don't two-three four", 1.0),
    ({"id": "length:words", "count": 4}, "a b c d e f g h i", 0.0),
    ({"id": "length:words", "count": 4, "scale": 10}, "a b c", 0.9),
    ({"id": "length:lines", "count": 2}, "a\n\nb\n", 1.0),
    ({"id": "case:upper"}, "AB c1", 2 / 3),
    ({"id": "case:upper"}, "123", 0.0),
    ({"id": "case:lower"}, "ab", 1.0),
    ({"id": "start:with", "text": "ab"}, " ab", 1.0),
    ({"id": "end:with", "text": "ab"}, "xab\n", 1.0),
    ({"id": "punctuation:no_comma"}, "a,b", 0.0),
    ({"id": "wrap:quotes"}, '"a b"', 1.0),
    ({"id": "wrap:quotes"}, '"', 0.0),
    ({"id": "wrap:quotes"}, '""', 0.0),
    ({"id": "list:bullets", "count": 2}, "- a\n* b", 1.0),
    ({"id": "list:bullets", "count": 2}, "- a\n- b\nc\nd", 0.5),
    ({"id": "json:valid"}, '{"a":1}', 1.0),
    ({"id": "json:valid", "keys": ["a", "b"]}, '{"a":1,"c":2}', 1 / 3),
    ({"id": "json:valid"}, '{"a":1,"a":2}', 0.0),
    ({"id": "repeat:times", "text": "ab", "count": 2}, "ab ab", 1.0),
    ({"id": "repeat:times", "text": "ab", "count": 2}, "ab ab pad pad", 0.5),
    ({"id": "sort:ascending", "items": ["b", "a"]}, "a, b", 1.0),
    ({"id": "sort:ascending", "items": [10, 9]}, "9 10", 1.0),
    ({"id": "sort:ascending", "items": [10, 9]}, "10 9", 0.0),
    ({"id": "sep:joined", "items": ["a", "b"], "sep": "-"}, "a-b", 1.0),
    ({"id": "sep:joined", "items": ["a", "b"], "sep": "-"}, "a,b", 0.0),
    ({"id": "sep:joined", "items": ["a", "b"], "sep": "-"}, "a-b-c", 1 / 3),
]


@pytest.mark.parametrize(("constraint", "text", "wanted"), CASES)
def test_each_constraint(
    constraint: dict[str, Any], text: str, wanted: float, make_task: Any, limits: Any, scripted: Any
) -> None:
    got = score(text, constraint, make_task=make_task, limits=limits, scripted=scripted)
    assert got == pytest.approx(wanted)


def test_every_own_id_is_covered_above() -> None:
    assert {case[0]["id"] for case in CASES} == {*plain.KINDS, "punctuation:no_comma"}


def test_the_score_is_the_weighted_mean(make_task: Any, limits: Any, scripted: Any) -> None:
    up, words = {"id": "case:upper", "weight": 3.0}, {"id": "length:words", "count": 1}
    got = score("ab", up, words, make_task=make_task, limits=limits, scripted=scripted)
    assert got == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        ([], "spec.constraints is empty"),
        ([{"id": "made:up"}], "spec.constraints[0].id"),
        ([{"id": "length:words"}], "spec.constraints[0].count"),
        ([{"id": "case:upper", "wrds": 1}], "wrds"),
        ([{"id": "keywords:existence", "words": []}], "spec.constraints[0].words is empty"),
        ([{"id": "sep:joined", "items": [1], "sep": "-"}], "spec.constraints[0].items"),
    ],
)
def test_a_broken_spec_is_named(constraints: list[Any], said: str) -> None:
    with pytest.raises(SpecError, match="spec") as caught:
        family.check_spec({"constraints": constraints}, {})
    assert said in str(caught.value)


def test_an_empty_answer_is_no_answer(make_task: Any, limits: Any, scripted: Any) -> None:
    with pytest.raises(UnusableAnswerError, match="empty"):
        score("  \n", {"id": "punctuation:no_comma"}, make_task=make_task, limits=limits, scripted=scripted)
