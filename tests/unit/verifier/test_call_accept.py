"""Acceptable values, loose texts, order, dotted names, and tasks where no call is right."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from services.verifier.families import call
from services.verifier.families.assign import in_order
from services.verifier.specs import SpecError

BOOK = {
    "name": "hotel.book",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer"},
            "price": {"type": "number"},
            "guests": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                },
            },
        },
        "required": ["city"],
    },
}
OTHER = {"name": "hotel.cancel", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
GUESTS = {"any": [{"items": [["Ann"], ["Bo"]]}]}


def spec(*want: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"syntax": "json", "functions": [BOOK, OTHER], "want": list(want), **more}


def accept(**slots: Any) -> dict[str, Any]:
    return {"name": "hotel.book", "accept": slots}


def book(**arguments: Any) -> str:
    return json.dumps([{"name": "hotel.book", "arguments": arguments}])


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(answer: str, given: dict[str, Any], **settings: Any) -> Any:
        call.check_spec(given, settings)
        return call.verify(make_task(given), settings, limits, answer.encode(), scripted())

    return run


def test_any_of_the_listed_values_is_right(judge: Any) -> None:
    want = spec(accept(city=["Bern", "Berne"], nights=[2]))
    for city in ("Bern", "Berne"):
        assert judge(book(city=city, nights=2), want).passed
    assert judge(book(city="Basel", nights=2), want).score == pytest.approx(0.3 + 0.7 / 2)
    assert not judge(book(city="bern", nights=2), want).passed


def test_an_optional_parameter_may_be_absent_but_not_wrong(judge: Any) -> None:
    want = spec(accept(city=["Bern"], nights={"any": [1], "optional": True}))
    assert judge(book(city="Bern"), want).passed
    assert judge(book(city="Bern", nights=1), want).passed
    wrong = judge(book(city="Bern", nights=3), want)
    assert wrong.score == pytest.approx(0.3 + 0.7 * 2 / 4)
    assert not wrong.passed


def test_alternatives_go_into_lists_and_objects(judge: Any) -> None:
    one = {"fields": {"name": ["Ann", "Anna"], "age": {"any": [30], "optional": True}}}
    want = spec(accept(city=["Bern"], guests={"any": [{"items": [[one], [one]]}]}))
    assert judge(book(city="Bern", guests=[{"name": "Ann"}, {"name": "Anna", "age": 30}]), want).passed
    for guests in ([{"name": "Ann"}], [{"name": "Ann"}, {}], [{"name": "Ann"}, {"name": "Ann", "x": 1}]):
        assert not judge(book(city="Bern", guests=guests), want).passed


def test_a_whole_number_stands_for_a_number_at_any_depth_but_not_the_other_way_round(judge: Any) -> None:
    assert judge(book(city="Bern", price=2), spec(accept(city=["Bern"], price=[2.0]))).passed
    assert not judge(book(city="Bern", nights=2.0), spec(accept(city=["Bern"], nights=[2]))).passed
    assert not judge(book(city="Bern", nights=True), spec(accept(city=["Bern"], nights=[1]))).passed


def test_loose_texts_are_equal_without_case_and_punctuation(judge: Any) -> None:
    want = spec(accept(city=["St. John's-town"]))
    assert judge(book(city="st john's town"), want, text="loose").passed
    assert not judge(book(city="st johns town"), want, text="loose").passed
    assert not judge(book(city="St Johns town"), want).passed
    assert judge(book(city='ST_JOHN"S TOWN'), want | {"text": "loose"}).passed


def test_tolerance_is_for_real_numbers_only(judge: Any) -> None:
    want = spec(accept(city=["Bern"], price=[100.0], nights=[100]))
    assert judge(book(city="Bern", price=100.05, nights=100), want, tolerance=0.001).passed
    assert not judge(book(city="Bern", price=100.05, nights=101), want, tolerance=0.05).passed


def test_every_order_of_parallel_calls_is_as_right_unless_order_counts(judge: Any) -> None:
    wanted = [{"name": "hotel.book", "arguments": {"city": city}} for city in ("A", "B", "C")]
    for order in permutations(wanted):
        text = json.dumps(order)
        assert judge(text, spec(*wanted)).passed
        kept = judge(text, spec(*wanted, order="kept"))
        assert kept.passed == (list(order) == wanted)
        assert kept.score is not None
        assert kept.score <= 1.0 if list(order) == wanted else kept.score < 0.9


def test_in_order_thins_out_and_never_rearranges() -> None:
    assert in_order([[0.0, 1.0], [1.0, 0.0]]) in ([(0, 1)], [(1, 0)])
    assert in_order([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]) == [(0, 0), (1, 2)]
    assert in_order([]) == []


def test_dotted_names_in_python_syntax_where_one_is_offered(judge: Any) -> None:
    want = spec(accept(city=["Bern"])) | {"syntax": "python"}
    assert judge("hotel.book(city='Bern')", want).passed
    assert judge("book(city='Bern')", want).score == pytest.approx(0.2)
    assert judge("hotel().book(city='Bern')", want).outcome == "invalid"


@pytest.mark.parametrize("syntax", ["json", "python"])
def test_where_no_call_is_right_only_saying_so_is(judge: Any, syntax: str) -> None:
    want = spec() | {"syntax": syntax}
    assert judge("[]", want).passed
    for text in ("abc", "I cannot do that.", "# nothing to call", "null", "{}", "None", "''"):
        made = judge(text, want)
        assert made.score == 0.0, text
        assert not made.passed
    called = book(city="Bern") if syntax == "json" else "hotel.book(city='Bern')"
    assert judge(called, want).score == 0.0
    declined = want | {"decline": ["No function fits."]}
    assert judge(" no function  fits.\n", declined).passed
    assert judge("No function fits. Or hotel.book(city='Bern')", declined).score == 0.0


def test_decline_texts_do_not_help_where_a_call_is_wanted(judge: Any) -> None:
    with pytest.raises(SpecError, match="decline"):
        judge("[]", spec(accept(city=["Bern"]), decline=["no"]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (spec(accept(town=["Bern"])), "unexpected parameter 'town'"),
        (spec(accept(city=[])), "is empty"),
        (spec(accept(city=[{"oneof": 1}])), "one of value, items, fields"),
        (spec(accept(city={"any": ["x"], "optional": 1})), "optional must be true or false"),
        (spec(accept(city={"any": ["x"], "optional": True})), "required parameter missing: city"),
        (spec(accept(city=[5])), "does not fit its schema"),
        (spec(accept(city=["x"]) | {"arguments": {}}), "both arguments and accept"),
        (spec(accept(city=["x"]), order="some"), "spec.order"),
        (spec(accept(city=["x"]), text="any"), "spec.text"),
        (spec(accept(city=["x"]), tolerance=2), "spec.tolerance"),
        (spec(accept(city=["x"])) | {"functions": [BOOK, BOOK]}, "is there twice"),
        (spec(*[accept(city=["x"])] * 33), "33 calls"),
    ],
)
def test_a_broken_spec_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        call.check_spec(given, {})
    assert said in str(caught.value)
