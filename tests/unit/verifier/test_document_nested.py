"""Nested answers by ANLS*, and tables by best assignment."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.families import anls, document, tables
from services.verifier.families.edit import Work
from services.verifier.specs import SpecError

ITEMS: dict[str, Any] = {
    "columns": {"name": {"type": "text"}, "sum": {"type": "number"}},
    "rows": [{"name": "pen", "sum": 2}, {"name": "ink", "sum": 9.5}, {"name": "cap", "sum": 1}],
}


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(answer: Any, spec: dict[str, Any], **settings: Any) -> Any:
        given = {"syntax": "json"} | spec
        document.check_spec(given, settings)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return document.verify(make_task(given), settings, limits, text.encode(), scripted())

    return run


@pytest.mark.parametrize(
    ("want", "got", "score"),
    [
        ("Hello World", "Hello Wrld", 10 / 11),
        ("Hello", "Goodbye", 0.0),
        # The example that the metric's own page works out.
        ({"a": {"$any": ["hello", "world"]}, "b": ["this", "is", "a", "test"]},
         {"a": "hello!", "b": ["a", "test", "this", "be"]}, 0.766_666_7),
        ({"a": "x", "b": "y"}, {"a": "x"}, 1 / 2),
        ({"a": "x"}, {"a": "x", "b": "y", "c": ["z", "z"]}, 1 / 4),
        (["a", "b"], ["b", "a"], 1.0),
        (["a", "b"], ["b", "a", "c"], 2 / 3),
        ({"$ordered": ["a", "b"]}, ["b", "a"], 0.0),
        ({"$ordered": ["a", "b"]}, ["a", "b", "c"], 2 / 3),
        ([{"n": "pen", "p": 2}, {"n": "ink", "p": 9}], [{"n": "ink", "p": 9}, {"n": "pen", "p": 3}], 3 / 4),
        (12.5, "12.50", 1.0),
        (12.5, 12.51, 0.0),
        (True, True, 1.0),
        (True, 1, 0.0),
        (1, True, 0.0),
        ("1", 1, 1.0),
        ({"$field": {"type": "date", "want": "2024-05-14"}}, "14 May 2024", 1.0),
        ({"d": {"$field": {"type": "money", "want": "3 EUR"}}}, {"d": {"amount": 3, "currency": "EUR"}}, 1.0),
        ({"$any": [{"a": "x"}, None]}, None, 1.0),
    ],
)  # fmt: skip
def test_scores(want: Any, got: Any, score: float) -> None:
    anls.check(want, "w", {})
    assert anls.score(want, got, {}) == pytest.approx(score, abs=1e-6)


def test_null_missing_and_empty_are_four_things_and_each_is_right_for_itself(judge: Any) -> None:
    values: list[Any] = [None, "", [], {}]
    for want in values:
        for got in values:
            assert judge({"k": got, "x": "y"}, {"answer": {"k": want, "x": "y"}}).passed == (
                want == got and type(want) is type(got)
            )
        assert judge({"x": "y"}, {"answer": {"k": want, "x": "y"}}).score == pytest.approx(1 / 2)
        assert judge({"x": "y", "k": want}, {"answer": {"x": "y"}}).score == pytest.approx(1 / 2)
    for want in values:
        assert judge(json.dumps(want), {"answer": want}).passed


def test_the_parts_tell_which_key_is_wrong(judge: Any) -> None:
    made = judge({"a": "x", "z": 1}, {"answer": {"a": "x", "b": ["y"]}})
    assert [(part.name, part.score) for part in made.parts[:2]] == [("a", 1.0), ("b", 0.0)]
    assert "not asked for: z" in made.parts[-1].evidence


def test_rows_in_any_order_are_one_document(judge: Any) -> None:
    spec = {"fields": {"id": {"type": "id", "want": "7"}}, "tables": {"items": ITEMS}}
    rows = [{"name": "ink", "sum": "9.50"}, {"name": "CAP", "sum": 1}, {"name": "pen", "sum": 2}]
    assert judge({"id": 7, "items": rows}, spec).passed
    less = judge({"id": 7, "items": rows[:2]}, spec)
    assert less.score == pytest.approx(2 * 5 / (5 + 7))
    assert not judge({"id": 7, "items": [*rows, {"name": "cup", "sum": 3}]}, spec).passed
    swapped = judge(
        {"id": 7, "items": [{"name": "ink", "sum": 2}, {"name": "pen", "sum": 9.5}, rows[1]]}, spec
    )
    assert swapped.score == pytest.approx(2 * 5 / 14)
    bads: list[Any] = [None, {}, "pen", [], [1, 2, 3], [[]], [{}]]
    for bad in bads:
        assert judge({"id": 7, "items": bad}, spec).score < 0.5
    assert judge({"id": 7}, spec).score == pytest.approx(2 / 8)


CELLS = st.none() | st.sampled_from(["pen", "ink", "cap", 1, 2, 9.5, "2", True])
ROWS = st.lists(st.dictionaries(st.sampled_from(["name", "sum", "x"]), CELLS, max_size=3), max_size=5)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.randoms(use_true_random=False))
def test_no_order_of_rows_changes_the_count(rows: list[dict[str, Any]], rng: random.Random) -> None:
    turned = ITEMS | {"rows": rng.sample(ITEMS["rows"], len(ITEMS["rows"]))}
    first = tables.count(ITEMS, rows, {}, Work())
    again = tables.count(turned, rng.sample(rows, len(rows)), {}, Work())
    assert (again.given, again.wanted) == (first.given, first.wanted)
    assert again.right == pytest.approx(first.right)
    assert 0.0 <= first.right <= min(first.given, first.wanted)


def test_the_assignment_of_rows_is_the_best_one(judge: Any) -> None:
    spec = {"tables": {"t": ITEMS | {"rows": [{"name": "a", "sum": 1}, {"name": "a", "sum": 2}]}}}
    assert judge({"t": [{"name": "a", "sum": 2}, {"name": "a", "sum": 1}]}, spec).passed


def test_an_empty_table_must_be_said(judge: Any) -> None:
    spec = {"tables": {"t": ITEMS | {"rows": []}}}
    assert judge({"t": []}, spec).passed
    bads: list[Any] = [{}, {"t": None}, {"t": [{"name": "x"}]}, {"t": [{}]}]
    for bad in bads:
        assert judge(bad, spec).score == 0.0


def test_rows_may_lack_cells_and_hold_null(judge: Any) -> None:
    spec = {"tables": {"t": ITEMS | {"rows": [{"name": "a"}, {"name": None, "sum": 1}]}}}
    assert judge({"t": [{"name": None, "sum": 1}, {"name": "a"}]}, spec).passed
    assert not judge({"t": [{"name": "", "sum": 1}, {"name": "a"}]}, spec).passed
    assert not judge({"t": [{"sum": 1}, {"name": "a"}]}, spec).passed


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "long text", "long test"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(TREES, TREES)
def test_anls_is_one_for_equal_trees_and_sound_for_all(want: Any, got: Any) -> None:
    assert anls.score(want, want, {}) == 1.0
    assert 0.0 <= anls.score(want, got, {}) <= 1.0
    # Plain trees have no alternatives, so neither side is the judge of the other.
    assert anls.score(want, got, {}) == pytest.approx(anls.score(got, want, {}))


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        made = [shuffled(each, rng) for each in value]
        rng.shuffle(made)
        return made
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    return value


@settings(max_examples=100, deadline=None)
@given(TREES, TREES, st.integers(0, 99))
def test_no_order_of_a_list_or_object_matters(want: Any, got: Any, seed: int) -> None:
    rng = random.Random(seed)
    assert anls.score(want, shuffled(want, rng), {}) == 1.0
    assert anls.score(want, shuffled(got, rng), {}) == pytest.approx(anls.score(want, got, {}))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"answer": {"a": {"$any": []}}}, "spec.answer.a.$any is empty"),
        ({"answer": {"$any": ["x"], "b": 1}}, "other keys beside its tag"),
        ({"answer": {"$field": {"type": "date", "want": "soon"}}}, "is no date"),
        ({"answer": {"$ordered": "x"}}, "must be a list"),
        ({"answer": ["x"] * 129}, "129 entries"),
        ({"answer": [["x"] * 128] * 9}, "1162 values"),
        ({"answer": [["ab" * 20] * 90] * 4}, "takes too long"),
        ({"tables": {"t": ITEMS | {"rows": [{"name": "x" * 200}] * 80}}}, "takes too long"),
        ({"answer": "x" * 5000}, "more than 4096"),
        ({"answer": float("inf")}, "no JSON value"),
        ({"answer": "x", "fields": {}}, "stands alone"),
        ({"answer": "x", "syntax": "pairs"}, "needs syntax `json`"),
        ({"tables": {"t": {"columns": {}, "rows": []}}}, "0 columns"),
        ({"tables": {"t": ITEMS | {"rows": [{"x": 1}]}}}, "unknown key 'x'"),
        ({"tables": {"t": ITEMS | {"rows": [{}]}}}, "is empty"),
        ({"tables": {"t": ITEMS | {"rows": [{"sum": "x"}]}}}, "is no number"),
        ({"tables": {"t": ITEMS}, "fields": {"t": {"type": "text", "want": "x"}}}, "is also a field"),
        ({"tables": {"t": ITEMS | {"rows": [{"name": "x"}] * 129}}}, "129 rows"),
    ],
)
def test_a_broken_spec_is_named(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        document.check_spec({"syntax": "json"} | spec, {})
    assert said in str(caught.value)


def test_of_assignments_that_are_equally_similar_the_order_decides_nothing() -> None:
    want: list[Any] = [None, [None, None]]
    got: list[Any] = [None, None, {"a": None, "b": None}]
    scores = {anls.score(list(w), list(g), {}) for w in permutations(want) for g in permutations(got)}
    assert len(scores) == 1
