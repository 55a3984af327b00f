"""Whatever an answer holds, a verdict of the document family is a finite score or `invalid`, in bounded time, never our fault."""

from __future__ import annotations

import json
import math
import time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.cards import parse_card
from schemas.tasks import Task
from services.verifier.engine import judge
from services.verifier.jail import Jail

CARD = parse_card(
    'name = "t.doc"\nlayer = "domain"\nsummary = "s"\ngenerator = "a:b"\n'
    '[verifier]\nfamily = "document"\n[verifier.settings]\npartial = true\n',
    "card",
)
FIELDS = {
    "n": {"type": "number", "want": 1.5, "relative": 0.1},
    "t": {"type": "text", "want": "ab" * 40},
    "d": {"type": "date", "want": "2024-05-14", "forms": "wide"},
    "m": {"type": "money", "want": "3 EUR"},
    "b": {"type": "boolean", "want": True},
    "i": {"type": "id", "want": "x7"},
}
ROWS: dict[str, Any] = {
    "columns": {"t": {"type": "text"}, "n": {"type": "number"}},
    "rows": [{"t": "ab" * 20 + str(n), "n": n} for n in range(60)],
}
SPECS: dict[str, dict[str, Any]] = {
    "fields": {"syntax": "json", "fields": FIELDS},
    "pairs": {"syntax": "pairs", "fields": FIELDS},
    "value": {"syntax": "value", "fields": {"n": FIELDS["n"]}},
    "rows": {"syntax": "json", "tables": {"r": ROWS}},
    "nested": {
        "syntax": "json",
        "answer": {"r": [{"t": "ab" * 20 + str(n), "n": n} for n in range(60)], "k": None},
    },
}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ntdmbirk"), inner, max_size=5)
    ),
    max_leaves=15,
)


def verdict(kind: str, answer: str | bytes) -> Any:
    raw = answer if isinstance(answer, bytes) else answer.encode("utf-8", "surrogatepass")
    return judge(
        Task(id="t", domain="t.doc", prompt="p", spec=SPECS[kind]), CARD, raw, cast("Jail", None), 1 << 25
    )


def sound(made: Any) -> None:
    assert made.outcome in {"scored", "invalid"}, made.evidence
    assert math.isfinite(made.score)
    assert 0.0 <= made.score <= 1.0
    assert made.passed == (made.score == 1.0)


@pytest.mark.parametrize("kind", sorted(SPECS))
@settings(max_examples=60, deadline=None)
@given(made=PLAIN, raw=st.text(max_size=40))
def test_any_answer_has_a_sound_verdict(kind: str, made: Any, raw: str) -> None:
    for text in (json.dumps(made), json.dumps({"r": made, "n": made}), raw, f"n={raw}"):
        sound(verdict(kind, text))


def test_the_wanted_answers_pass() -> None:
    right = {"n": 1.5, "t": "ab" * 40, "d": "14th May 2024", "m": "€3", "b": True, "i": "X7"}
    assert verdict("fields", json.dumps(right)).passed
    assert verdict("pairs", ";".join(f"{key}={value}" for key, value in right.items())).passed
    assert verdict("rows", json.dumps({"r": ROWS["rows"][::-1]})).passed
    assert verdict("nested", json.dumps(SPECS["nested"]["answer"])).passed


DEEP = 100_000
LONG = 4000
HOSTILE: dict[str, str | bytes] = {
    "brackets": "[" * DEEP,
    "closed brackets": "[" * DEEP + "]" * DEEP,
    "objects": '{"n":' * DEEP,
    "10 MB": "x" * 10_000_000,
    "10 MB pairs": "n=1;" * 2_500_000,
    "10 MB text": '{"t":"' + "a" * 10_000_000 + '"}',
    "near miss": json.dumps({"t": "ba" * 40 + "a" * 60}),
    "near rows": json.dumps({"r": [{"t": "ba" * 20 + str(n), "n": n} for n in range(250)]}),
    "too many rows": json.dumps({"r": [{"t": "x"}] * 3000}),
    "scalar rows": json.dumps({"r": [0] * 9000}),
    "near nodes": json.dumps({"r": [{"t": "ba" * 20 + str(n)} for n in range(1200)]}),
    "wide": json.dumps({"r": [[]] * 20_000}),
    "keys": json.dumps({str(n): n for n in range(5000)}),
    "duplicate": '{"n":1.5,"n":1.5}',
    "NaN": '{"n":NaN}',
    "Infinity": '{"n":-Infinity}',
    "huge exponent": '{"n":1e999999}',
    "huge exponent text": '{"n":"1e999999999999"}',
    "huge digits": '{"n":' + "1" * DEEP + "}",
    "huge digits text": '{"n":"' + "1" * 60_000 + '"}',
    "plain digits": "1" * DEEP,
    "surrogate": '{"t":"\\ud800"}',
    "raw surrogate": b'{"t":"\xed\xa0\x80"}',
    "compatibility bomb": json.dumps({"t": "\ufdfa" * LONG}, ensure_ascii=False),
    "combining": json.dumps({"t": "a" + "\u0301" * LONG}, ensure_ascii=False),
    "spaces": json.dumps({"d": " " * 60_000 + "2024-05-14"}),
    "date digits": json.dumps({"d": "9" * 100 + "-05-14"}),
    "money signs": json.dumps({"m": "€" * 60 + "3"}),
    "money commas": json.dumps({"m": "€" + ",." * 60}),
    "superscript": json.dumps({"n": "1\u2075", "d": "\u0662\u0660\u0662\u0664-05-14"}),
    "yaml laughs": "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]",
    "xml laughs": '<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;">]><x>&b;</x>',
    "null byte": "\0",
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize("kind", sorted(SPECS))
def test_hostile_answers_are_bounded_and_worth_little(name: str, kind: str) -> None:
    started = time.process_time()
    made = verdict(kind, HOSTILE[name])
    assert time.process_time() - started < 15.0
    sound(made)
    assert not made.passed
    assert verdict(kind, HOSTILE[name]).digest == made.digest


@pytest.mark.parametrize("padding", ["{} ", " or {}", "\n{}", "{}."])
def test_an_answer_with_others_around_it_is_wrong(padding: str) -> None:
    assert verdict("value", "1.5").passed
    assert verdict("value", "1.5" + padding.format("2.5")).score == 0.0
    assert verdict("value", padding.format("2.5") + "1.5").score == 0.0
