from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from services.verifier.families import document, fields
from services.verifier.specs import SpecError

FIELDS = {"n": {"type": "text", "want": "Ann Lee"}, "a": {"type": "number", "want": 1234.5}}


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(text: str, wanted: dict[str, Any] = FIELDS, syntax: str = "json", **settings: Any) -> Any:
        spec = {"syntax": syntax, "fields": wanted}
        document.check_spec(spec, settings)
        return document.verify(make_task(spec), settings, limits, text.encode(), scripted())

    return run


def test_right_in_every_syntax(judge: Any) -> None:
    assert judge('{"n":"ann  lee","a":1234.5}').passed
    assert judge("n=Ann Lee;a=1,234.50", syntax="pairs").passed
    assert judge("n=Ann Lee\na=1234.5\n", syntax="pairs").passed
    assert judge(" ann lee\n", {"n": FIELDS["n"]}, syntax="value").passed


def test_f1_counts_missing_wrong_and_invented_fields(judge: Any) -> None:
    assert judge('{"n":"Ann Lee"}').score == pytest.approx(2 / 3)
    assert judge('{"n":"Ann Lee","a":1}').score == pytest.approx(0.5)
    assert judge('{"n":"Ann Lee","a":1234.5,"z":1}').score == pytest.approx(4 / 5)
    assert not judge('{"n":"Ann Lee","a":1234.5,"z":1}').passed


def test_missing_null_and_empty_are_three_things(judge: Any) -> None:
    null = {"n": {"type": "text", "want": None}, "a": {"type": "text", "want": "x"}}
    empty = {"n": {"type": "text", "want": ""}, "a": {"type": "text", "want": "x"}}
    scores = {
        (name, text): judge(text, wanted).score
        for name, wanted in (("null", null), ("empty", empty))
        for text in ('{"a":"x"}', '{"a":"x","n":null}', '{"a":"x","n":""}')
    }
    assert [key for key, score in scores.items() if score == 1.0] == [
        ("null", '{"a":"x","n":null}'),
        ("empty", '{"a":"x","n":""}'),
    ]


def test_partial_text_is_anls_with_a_floor(judge: Any) -> None:
    wanted = {"n": {"type": "text", "want": "abcd"}}
    assert judge("n=abcx", wanted, "pairs", partial=True).score == pytest.approx(0.75)
    assert judge("n=axxx", wanted, "pairs", partial=True).score == 0.0
    assert judge("n=abcx", wanted, "pairs").score == 0.0


@pytest.mark.parametrize("text", ["n:Ann", "n=a;n=b", "=x", "{}", ";".join(f"k{n}=1" for n in range(300))])
def test_unparsable_pairs_are_invalid(judge: Any, text: str) -> None:
    assert judge(text, syntax="pairs").outcome == "invalid"


def test_json_must_be_one_object(judge: Any) -> None:
    for text in ('["n"]', '{"n":"a","n":"b"}', '{"n":'):
        assert judge(text).outcome == "invalid"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("12", "12"),
        ("$1,234.50", "1234.5"),
        ("1.234,50 €", "1234.5"),
        ("1,234", "1234"),
        ("1,5", "1.5"),
        ("1.234.567", "1234567"),
        ("-3e2", "-300"),
        (7, "7"),
        (0.1, "0.1"),
    ],
)
def test_numbers(written: Any, value: str) -> None:
    assert fields.number(written) == Decimal(value)


@pytest.mark.parametrize("written", ["nan", "inf", "1e999999999", "0x10", "", "1 2 x", True, None, [1]])
def test_what_is_no_number(written: Any) -> None:
    assert fields.number(written) is None


@pytest.mark.parametrize(
    "written",
    ["2024-05-14", "2024/5/14", "14 May 2024", "May 14, 2024", "14.05.2024", "14 may 2024", "2024 May 14"],
)
def test_dates(written: str) -> None:
    assert fields.day(written, "dmy") == "2024-05-14"


def test_dates_by_order_and_what_is_none() -> None:
    assert fields.day("05/14/2024", "mdy") == "2024-05-14"
    for written in (
        "2024-14-05",
        "2024-02-30",
        "14 May 24",
        "May",
        "2024-05",
        "14 May Jun",
        "٢٠٢٤-05-14",
        None,
        5,
    ):
        assert fields.day(written, "dmy") is None


def test_distance_against_known_pairs() -> None:
    assert fields.distance("kitten", "sitting") == 3
    assert fields.distance("", "abc") == 3
    assert fields.anls("", "") == 1.0


def test_a_broken_spec_is_named() -> None:
    field = {"type": "date", "want": "soon"}
    for spec, said in [
        ({"syntax": "json", "fields": {}}, "spec.fields is empty"),
        ({"syntax": "json", "fields": {"d": field}}, "spec.fields.d.want"),
        ({"syntax": "value", "fields": FIELDS}, "exactly one"),
        (
            {"syntax": "json", "fields": {"e": {"type": "enum", "want": "x", "values": ["y"]}}},
            "among its values",
        ),
    ]:
        with pytest.raises(SpecError) as caught:
            document.check_spec(spec, {})
        assert said in str(caught.value)


def test_the_last_number_of_a_sentence_where_the_card_asks_for_it(judge: Any) -> None:
    wanted = {"answer": {"type": "number", "want": -52}}
    assert judge("43 - 95 is -52.", wanted, syntax="value", find="last_number").passed
    assert judge("-52", wanted, syntax="value", find="last_number").passed
    assert judge("-52, or perhaps 52", wanted, syntax="value", find="last_number").score == 0.0
    assert judge("I do not know", wanted, syntax="value", find="last_number").outcome == "invalid"
    assert judge("43 - 95 is -52.", wanted, syntax="value").score == 0.0
    for hack in ("x-52", "-52x", "a_-52", "v1.-52", "-52.5", "-52,5", "-52%"):
        assert not judge(hack, wanted, syntax="value", find="last_number").passed, hack
    listed = " ".join(map(str, range(-60, -51)))
    assert judge(listed, wanted, syntax="value", find="last_number").outcome == "invalid"
    assert judge("43 - 95 = 43 - 95 = -52", wanted, syntax="value", find="last_number").passed
    with pytest.raises(SpecError, match="find"):
        judge("1", wanted, syntax="value", find="first")


def test_padding_hides_nothing(judge: Any) -> None:
    number = {"n": {"type": "number", "want": 42}}
    assert judge("42" + " " * 200 + "or 43", number, syntax="value").score == 0.0
    assert judge("4 2", number, syntax="value").score == 0.0
    assert judge("$ 42", number, syntax="value").passed
    assert judge("1 234.5 €", {"n": {"type": "number", "want": 1234.5}}, syntax="value").passed
    text = {"n": {"type": "text", "want": "x"}}
    assert judge("x" + " " * 5000 + "or y", text, syntax="value").score == 0.0
