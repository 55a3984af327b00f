"""Characters that nobody sees, and letters that look like others, neither hide a word nor make one."""

# ruff: noqa: RUF001 (look-alikes are the point)
from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import format as family
from services.verifier.specs import SpecError

FORBIDDEN: dict[str, Any] = {"id": "keywords:forbidden_words", "forbidden_words": ["fox"]}
WORDS: dict[str, Any] = {"id": "length_constraints:number_words", "num_words": 50, "relation": "at least"}
EXISTS: dict[str, Any] = {"id": "keywords:existence", "keywords": ["fox"]}


def score(text: str, constraint: dict[str, Any]) -> float:
    family.check_spec({"constraints": [constraint]}, {})
    (made,) = family.scores(text, [constraint])
    return made


@pytest.mark.parametrize(
    "said",
    [
        "fox",
        "f\u200box",
        "f\u200dox",
        "fo\u00adx",
        "fo\u2060x",
        "fo\ufe0fx",
        "f\u034fox",
        "fo\x01x",
        "\u202efox",
        "fo\U000e0001x",
        "ｆｏｘ",
        "𝐟𝐨𝐱",
        "f\u043ex",
        "fо\u0445",
        "F\u039fX",
    ],
)
def test_a_forbidden_word_stays_forbidden_however_it_is_written(said: str) -> None:
    assert score(f"The {said} runs.", FORBIDDEN) == 0.0
    assert score("The ox runs.", FORBIDDEN) == 1.0


@pytest.mark.parametrize("char", ["\u200b", "\u3164", "\u115f", "\uffa0", "\ufeff", "\U000e0061", "\x02"])
def test_what_nobody_sees_is_no_word(char: str) -> None:
    assert score(f"{char} " * 60, WORDS) == 0.0
    assert score(f"one {char * 9} two " + f"{char} " * 60, WORDS) == pytest.approx(2 / 50)
    hidden = "".join(chr(0xE0000 + ord(each)) for each in "fox")
    assert score(f"nothing {hidden}", EXISTS) == 0.0


def test_joiners_within_a_word_leave_it_one_word() -> None:
    wanted = {"id": "keywords:existence", "keywords": ["می\u200cخواهم"]}
    assert score("من می\u200cخواهم بروم", wanted) == 1.0


def test_an_argument_that_nobody_sees_is_at_fault() -> None:
    for constraint in (
        {"id": "keywords:existence", "keywords": ["\u200b"]},
        {
            "id": "keywords:letter_frequency",
            "letter": "\u200b",
            "let_frequency": 1,
            "let_relation": "at least",
        },
    ):
        with pytest.raises(SpecError):
            family.check_spec({"constraints": [constraint]}, {})
