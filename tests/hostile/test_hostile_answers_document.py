"""Answers to document tasks that try to count as more than they say: each gets the F1, or ANLS*, of what it says."""

# ruff: noqa: RUF001 (look-alikes are what this is about)
from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.verdicts import Verdict
from tests.hostile import answers
from tests.hostile.answers import points

pytestmark = pytest.mark.hostile
FIELDS: dict[str, Any] = {
    "name": {"type": "text", "want": "Anna Invoice"},
    "total": {"type": "number", "want": 1234.5},
    "count": {"type": "number", "want": 102},
    "due": {"type": "date", "want": "2024-05-14"},
    "paid": {"type": "boolean", "want": True},
    "price": {"type": "money", "want": "12.50 EUR"},
    "code": {"type": "id", "want": "AB-007", "case": True},
    "kind": {"type": "enum", "want": "credit", "values": ["credit", "debit"]},
    "note": {"type": "text", "want": None},
    "blank": {"type": "text", "want": ""},
}
RIGHT: dict[str, Any] = {
    "name": "Anna Invoice",
    "total": 1234.5,
    "count": 102,
    "due": "2024-05-14",
    "paid": True,
    "price": "12.50 EUR",
    "code": "AB-007",
    "kind": "credit",
    "note": None,
    "blank": "",
}
SPEC = {"syntax": "json", "fields": FIELDS}
COUNT = len(FIELDS)


def judge(answer: str | bytes, spec: dict[str, Any] = SPEC, settings: str = "") -> Verdict:
    return answers.verdict("document", "domain", spec, answer, settings)


def said(changes: dict[str, Any]) -> str:
    return json.dumps(RIGHT | changes, ensure_ascii=False)


def test_the_work_itself_passes() -> None:
    assert judge(said({})).passed


WRONG: dict[str, tuple[str, Any]] = {
    "confusable-letter": ("name", "Аnna Invoice"),  # a Cyrillic A
    "confusable-case": ("name", "Anna lnvoice"),
    "zero-width-space": ("name", "Anna\u200b Invoice"),
    "zero-width-joiner": ("name", "Anna In\u200dvoice"),
    "soft-hyphen": ("name", "Anna In\u00advoice"),
    "direction-mark": ("name", "\u202eAnna Invoice"),
    "variation-selector": ("name", "Anna Invoice\ufe0f"),
    "tag-letters": ("name", "Anna Invoice" + "".join(chr(0xE0000 + ord(char)) for char in "or Bob")),
    "combining-dot": ("name", "Anna Invoice\u0323"),
    "hangul-filler": ("name", "Anna\u3164\u3164Invoice"),
    "two-answers": ("name", "Anna Invoice / Bob Invoice"),
    "list-of-answers": ("name", ["Anna Invoice", "Bob"]),
    "object-that-equals": ("name", {"$any": ["Anna Invoice"]}),
    "field-of-the-spec": ("name", {"type": "text", "want": "Anna Invoice"}),
    "padded": ("name", "Anna Invoice " * 300),
    "superscript": ("count", "10²"),
    "subscript": ("count", "10₂"),
    "circled": ("count", "①0②"),
    "parenthesised": ("count", "⑴02"),
    "fraction": ("total", "1234½"),
    "superscript-number": ("total", "¹234.5"),
    "arabic-digits": ("count", "١٠٢"),
    "devanagari-digits": ("count", "१०२"),
    "two-numbers": ("count", "102 103"),
    "number-and-doubt": ("count", "102?"),
    "range": ("count", "100-102"),
    "sum": ("count", "100+2"),
    "exponent-too-large": ("count", "102e400"),
    "ten-thousand-digits": ("count", "1" * 10_000),
    "padded-with-zeros": ("count", "0" * 200 + "102"),
    "words-for-none": ("count", "NaN"),
    "infinity": ("count", "Infinity"),
    "signs": ("count", "--102"),
    "boolean-for-a-number": ("count", True),
    "null-for-a-number": ("count", None),
    "boolean-for-text": ("name", True),
    "number-for-true": ("paid", 1),
    "real-for-true": ("paid", 1.0),
    "list-for-true": ("paid", [True]),
    "object-for-true": ("paid", {}),
    "text-null-for-null": ("note", "null"),
    "empty-for-null": ("note", ""),
    "false-for-null": ("note", False),
    "zero-for-null": ("note", 0),
    "list-for-null": ("note", []),
    "null-for-empty": ("blank", None),
    "list-for-empty": ("blank", []),
    "unseen-for-empty": ("blank", "\u200b"),
    "word-for-empty": ("blank", "null"),
    "date-with-other-digits": ("due", "٢٠٢٤-05-14"),
    "date-raised": ("due", "2024-05-1⁴"),
    "two-dates": ("due", "2024-05-14 2024-05-15"),
    "no-such-day": ("due", "2024-02-30"),
    "date-as-number": ("due", 20240514),
    "no-currency": ("price", "12.50"),
    "two-currencies": ("price", "€12.50 EUR"),
    "raised-amount": ("price", "12.⁵0 EUR"),
    "amount-of-a-boolean": ("price", {"amount": True, "currency": "EUR"}),
    "amount-and-more": ("price", {"amount": 12.5, "currency": "EUR", "or": 13}),
    "currency-list": ("price", {"amount": 12.5, "currency": ["EUR", "USD"]}),
    "lower-case": ("code", "ab-007"),
    "less-zeros": ("code", "AB-7"),
    "unseen-in-an-id": ("code", "AB\u200b-007"),
    "hyphen-of-another-kind": ("code", "AB\u2011007\u200b"),
    "all-of-the-values": ("kind", "credit debit"),
    "prefix-of-a-value": ("kind", "cred"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_is_not_the_wanted_one_costs_its_field(name: str) -> None:
    field, value = WRONG[name]
    assert judge(said({field: value})).score == pytest.approx((COUNT - 1) / COUNT)


SAME: dict[str, tuple[str, Any]] = {
    "wide-letters": ("name", "Ａｎｎａ Ｉｎｖｏｉｃｅ"),
    "other-spaces": ("name", "Anna\u00a0\u3000Invoice\n"),
    "capitals": ("name", "ANNA INVOICE"),
    "wide-digits": ("count", "１０２"),
    "text-for-a-number": ("count", "102.0"),
    "real-for-a-whole-number": ("count", 102.0),
    "separators": ("total", "1.234,50"),
    "signs-around": ("total", "1 234.5"),
    "yes": ("paid", "YES"),
    "euro-sign": ("price", "€12.5"),
    "amount": ("price", {"amount": 12.5, "currency": "eur"}),
    "date-in-words": ("due", "14 May 2024"),
}


@pytest.mark.parametrize("name", SAME)
def test_another_spelling_of_the_wanted_value_is_the_wanted_value(name: str) -> None:
    field, value = SAME[name]
    assert judge(said({field: value})).passed


def test_missing_null_and_empty_are_three_things() -> None:
    for field, given in (("note", RIGHT["note"]), ("blank", RIGHT["blank"])):
        without = {key: value for key, value in RIGHT.items() if key != field}
        assert judge(json.dumps(without)).score == pytest.approx(2 * (COUNT - 1) / (2 * COUNT - 1))
        assert judge(json.dumps(without | {field: given})).passed


@pytest.mark.parametrize("key", ["nаme", "name\u200b", "Name", "ｎａｍｅ", "name ", "na\u0000me", ""])
def test_a_key_that_looks_like_a_wanted_one_is_another(key: str) -> None:
    """Beside the wanted one it is invented, in its place that is missing as well."""
    assert judge(said({key: "Anna Invoice"})).score == pytest.approx(2 * COUNT / (2 * COUNT + 1))
    moved = {key if name == "name" else name: value for name, value in RIGHT.items()}
    assert judge(json.dumps(moved, ensure_ascii=False)).score == pytest.approx((COUNT - 1) / COUNT)


WHOLE = said({})
BROKEN: dict[str, str | bytes] = {
    "a-key-twice": WHOLE[:-1] + ', "name": "Bob"}',
    "a-key-twice-the-same": WHOLE[:-1] + ', "name": "Anna Invoice"}',
    "a-key-twice-by-escape": WHOLE[:-1] + ', "n\\u0061me": "Bob"}',
    "a-key-twice-inside": WHOLE.replace("null", '{"a": 1, "a": 2}'),
    "NaN": WHOLE.replace("102", "NaN"),
    "Infinity": WHOLE.replace("102", "-Infinity"),
    "too-large": WHOLE.replace("102", "1e400"),
    "too-small-to-be-one": WHOLE.replace("102", "1e"),
    "ten-thousand-digits": WHOLE.replace("102", "1" * 10_000),
    "ten-thousand-decimals": WHOLE.replace("102", "102." + "0" * 10_000),
    "wide-digits": WHOLE.replace("102", "１０２"),
    "hexadecimal": WHOLE.replace("102", "0x66"),
    "octal": WHOLE.replace("102", "0102"),
    "underscore": WHOLE.replace("102", "1_02"),
    "plus": WHOLE.replace("102", "+102"),
    "deep": WHOLE.replace("null", "[" * 200 + "]" * 200),
    "very-deep": WHOLE.replace("null", "[" * 30_000 + "]" * 30_000),
    "deep-objects": WHOLE.replace("null", '{"a":' * 5000 + "1" + "}" * 5000),
    "comment": WHOLE + " // credit",
    "comment-inside": WHOLE.replace("102", "102 /* or 103 */"),
    "trailing-comma": WHOLE[:-1] + ",}",
    "single-quotes": WHOLE.replace('"', "'"),
    "python-words": WHOLE.replace("true", "True").replace("null", "None"),
    "two-objects": WHOLE + WHOLE,
    "lines-of-objects": WHOLE + "\n" + WHOLE.replace("Anna", "Bob"),
    "list-of-objects": f"[{WHOLE}, {WHOLE}]",
    "text-of-an-object": json.dumps(WHOLE),
    "fenced": f"```json\n{WHOLE}\n```",
    "byte-order-mark": "\ufeff" + WHOLE,
    "lone-surrogate": WHOLE.replace("Anna", "\\ud83d"),
    "raw-surrogate": WHOLE.encode().replace(b"Anna", b"\xed\xa0\xbd"),
    "overlong-slash": WHOLE.encode().replace(b"Anna", b"\xc0\xaf"),
    "control-character": WHOLE.replace("Anna", "An\x01na"),
    "nothing-seen": "\u200b\u2060\ufeff",
    "three-hundred-fields": json.dumps(RIGHT | {str(n): n for n in range(300)}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_strict_json_of_fair_size_is_invalid(name: str) -> None:
    made = judge(BROKEN[name])
    assert (made.outcome, made.score) == ("invalid", 0.0), made


ROWS: list[dict[str, Any]] = [{"item": f"thing {n}", "amount": n} for n in range(100)]
TABLE = {
    "syntax": "json",
    "tables": {"rows": {"columns": {"item": {"type": "text"}, "amount": {"type": "number"}}, "rows": ROWS}},
}


def f1(right: int, given: int, wanted: int) -> float:
    return 2 * right / (given + wanted)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS[::-1], 1.0),
        (ROWS + ROWS, f1(200, 400, 200)),
        (ROWS + [{}] * 100, f1(200, 300, 200)),
        (ROWS + [None] * 100, f1(200, 300, 200)),
        ([row | {"more": 1} for row in ROWS], f1(200, 300, 200)),
        ([{"item": f"thing {n}", "amount": 99 - n} for n in range(100)], f1(100, 200, 200)),
        ([{"item": "thing 1", "amount": 1}] * 100, f1(2, 200, 200)),
        ([[]] * 100, 0.0),
        ([], 0.0),
        (None, 0.0),
        ({"item": "thing 1", "amount": 1}, 0.0),
        ("thing 1", 0.0),
    ],
    ids=[
        "reversed",
        "twice",
        "empty",
        "null",
        "column",
        "swapped",
        "same",
        "lists",
        "none",
        "null-table",
        "row",
        "text",
    ],
)
def test_rows_are_paired_one_to_one_and_what_is_too_much_costs(rows: Any, expected: float) -> None:
    assert judge(json.dumps({"rows": rows}), TABLE).score == pytest.approx(expected, abs=1e-9)


FLOODS = {
    "thousands-of-rows": [{"item": "t", "amount": 1}] * 2500,
    "thousands-of-scalars": [0] * 20_000,
    "thousands-of-lists": [[]] * 20_000,
    "the-most-rows-all-near": [{"item": f"thimg {n}", "amount": n + 0.5} for n in range(256)],
    "the-most-rows-all-equal": [{"item": "thing 1", "amount": 1}] * 256,
    "long-cells": [{"item": "thing " * 600, "amount": "1" * 128} for _ in range(16)],
    "wide-rows": [{str(n): n for n in range(1000)}] * 5,
    "expanding": [{"item": "\ufdfa" * 100, "amount": "\ufdfa" * 100} for _ in range(100)],
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_rows_ends_in_time(name: str) -> None:
    made = judge(
        json.dumps({"rows": FLOODS[name]}, ensure_ascii=False), TABLE, "[verifier.settings]\npartial = true\n"
    )
    assert points(made) < 0.6


NESTED = {
    "syntax": "json",
    "answer": {"who": "Anna", "age": 41, "tags": ["a", "b"], "none": None, "gone": {"x": [True]}},
}


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        ({"who": "Anna", "age": 41, "tags": ["b", "a"], "none": None, "gone": {"x": [True]}}, 1.0, 1.0),
        ({"who": "Anna", "age": 41, "tags": ["b", "a"], "gone": {"x": [True]}}, 0.8, 0.9),
        ({"who": "Anna", "age": 41, "tags": ["b", "a"], "none": "", "gone": {"x": [True]}}, 0.8, 0.9),
        ({"who": "Anna", "age": 41, "tags": ["b", "a"], "none": None, "gone": {"x": [1]}}, 0.8, 0.9),
        ({"who": "Anna", "age": True, "tags": ["b", "a"], "none": None, "gone": {"x": [True]}}, 0.8, 0.9),
        ({"who": {"$any": ["Anna", "Bob"]}, "age": 41, "tags": ["b", "a"], "none": None, "gone": {"x": [True]}}, 0.6, 0.9),
        ({"who": "Anna", "age": 41, "tags": ["a", "b"] * 50, "none": None, "gone": {"x": [True]}}, 0.01, 0.1),
        ({"who": "Anna", "age": 41, "tags": [], "none": None, "gone": {}}, 0.4, 0.6),
        ([NESTED["answer"]], 0.0, 0.0),
        (["Anna", 41, "a", "b", None, True], 0.0, 0.0),
        ([], 0.0, 0.0),
        ({}, 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)  # fmt: skip
def test_a_nested_answer_gets_what_it_says(answer: Any, least: float, most: float) -> None:
    assert least <= points(judge(json.dumps(answer), NESTED)) <= most


@pytest.mark.parametrize(
    "text",
    ["total=1;total=1", "total", "=1", "total=1;;=2", "total=1\u2028total=1;total=2", "x" * 70_000, "a=1;" * 2000, "\x00=1"],
)  # fmt: skip
def test_pairs_that_are_none_or_said_twice_earn_nothing(text: str) -> None:
    spec = {"syntax": "pairs", "fields": {"total": {"type": "number", "want": 1}}}
    assert judge("total=1", spec).passed
    assert judge(text, spec).score == 0.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("The total is 102.", 1.0),
        ("1 2 3 4 102", 1.0),
        ("102 or 103", 0.0),
        ("102, 103", 0.0),
        ("1 2 3 4 5 102", 0.0),
        (" ".join(map(str, range(103))), 0.0),
        ("10²", 0.0),
        ("102²", 0.0),
        ("102½", 0.0),
        ("102%", 0.0),
        ("102e9", 0.0),
        ("1" * 100_000 + " 102x", 0.0),
        ("1." * 100_000, 0.0),
        ("-" * 100_000 + "102", 0.0),
    ],
)
def test_the_last_number_of_a_sentence_is_one_number(text: str, score: float) -> None:
    spec = {"syntax": "value", "fields": {"n": {"type": "number", "want": 102}}}
    assert judge(text, spec, '[verifier.settings]\nfind = "last_number"\n').score == score
