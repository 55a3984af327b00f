"""No text makes a check slow: the CPU of every kind on hostile text against one plain pass over the same text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from services.verifier.families import format as family
from services.verifier.families.constraints import KINDS, kind, plain
from services.verifier.families.constraints.examples import EXAMPLES
from services.verifier.families.constraints.text import Text

SIZE = 65_536
PASSES = 100
"""Plain passes that a check may cost; one that is not linear costs thousands."""
OWN: dict[str, dict[str, Any]] = {
    "keywords:existence": {"words": ["a a a b", "rain"]},
    "keywords:frequency": {"word": "a a a a b", "count": 3},
    "keywords:forbidden": {"words": ["a a b"]},
    "length:words": {"count": 3},
    "length:lines": {"count": 3},
    "start:with": {"text": "a"},
    "end:with": {"text": "a"},
    "list:bullets": {"count": 3},
    "repeat:times": {"text": "a b", "count": 3},
    "sort:ascending": {"items": ["b", "a"]},
    "sep:joined": {"items": ["a", "b"], "sep": "a"},
}
UNITS = {
    "one word": "a", "short words": "a ", "brackets": "[", "nested": "[(", "crossed": "([)]", "double quotes": '"',
    "both quotes": "\"'", "apostrophes": "-'", "bullets": "* \n", "open stars": "*.* .", "half highlights": "*a ",
    "titles": ">><<a", "new lines": "\n", "stops": ".", "initials": "A. ", "sections": "SECTION 1 ",
    "half sections": "SECTION#", "postscripts": "P.S.\n", "japanese": "雨", "marks": "a\u0301", "emoji": "🌧️ ",
    "digits": "1,", "json": '{"a":', "quiz": "Question 1\nA) x\n", "keywords": "rain, ", "labels": "My Answer: ",
    "italics": "<i>", "questions": "Why? ", "capitals": "Oslo,", "cells": '",', "dividers": "***\na",
}  # fmt: skip


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def one_pass(text: str) -> int:
    return sum(char.isalnum() for char in text)


def views(text: Text) -> tuple[object, ...]:
    return text.words, text.low, text.lines, text.blocks, text.sentences


def everything() -> list[dict[str, Any]]:
    public = [{"id": name, **example.args} for name, example in EXAMPLES.items()]
    return public + [{"id": name, **OWN.get(name, {})} for name in plain.KINDS]


def test_everything_is_everything() -> None:
    assert {each["id"] for each in everything()} == set(KINDS)
    for each in everything():
        family.check_spec({"constraints": [each]}, {})


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_every_kind_is_linear(unit: str) -> None:
    raw = (UNITS[unit] * SIZE)[:SIZE]
    budget = PASSES * max(cpu(lambda: one_pass(raw)) for _ in range(3))
    shared = Text(raw)
    assert min(cpu(lambda: views(Text(raw))) for _ in range(3)) < budget
    slow = {}
    for each in everything():
        form = kind(each, "constraint")
        spent = cpu(lambda form=form, each=each: form.score(shared, each))  # type: ignore[misc]
        if spent > budget:  # the collector may have run just then: measured again
            spent = min(cpu(lambda form=form, each=each: form.score(shared, each)) for _ in range(3))  # type: ignore[misc]
        if spent > budget:
            slow[each["id"]] = round(PASSES * spent / budget)
    assert slow == {}, f"passes over the text, {PASSES} allowed"


def test_the_measure_finds_what_is_not_linear() -> None:
    raw = "a" * SIZE
    budget = PASSES * max(cpu(lambda: one_pass(raw)) for _ in range(3))

    def quadratic() -> int:
        return sum(raw[at:].count("b") for at in range(0, len(raw), 2))

    assert cpu(quadratic) > budget
