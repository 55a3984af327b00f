from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.families import format as family
from services.verifier.families.constraints.examples import EXAMPLES
from services.verifier.families.constraints.kinds import nearness
from services.verifier.families.constraints.text import Text, has_word

PIECES = [*(example.good for example in EXAMPLES.values()), *(example.bad for example in EXAMPLES.values())]
MARKS = st.sampled_from(
    [
        *"*-[]<>()\"'.,!?#:;{}\n\t ",
        "***",
        "******",
        "```",
        "<<",
        ">>",
        "SECTION 1",
        "P.S.",
        "雨",
        "🌧️",
        "\u0301",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(MARKS, st.sampled_from(PIECES), st.text(max_size=8)), max_size=12).map("".join),
)
EVERY: list[dict[str, Any]] = [{"id": name, **example.args} for name, example in EXAMPLES.items()]


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_every_score_is_finite_in_range_and_the_same_again(text: str) -> None:
    scores = family.scores(text, EVERY)
    assert all(math.isfinite(score) and 0.0 <= score <= 1.0 for score in scores)
    assert family.scores(text, EVERY) == scores
    if not has_word(text):
        assert set(scores) == {0.0}


@settings(max_examples=80, deadline=None)
@given(text=TEXTS)
def test_loose_is_never_below_strict(text: str) -> None:
    strict = [score == 1.0 for score in family.scores(text, EVERY)]
    assert all(loose >= met for loose, met in zip(family.loose(text, EVERY), strict, strict=True))


@given(
    words=st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=5, unique=True),
    times=st.integers(2, 9),
)
def test_who_lists_every_word_once_has_not_said_it_often(words: list[str], times: int) -> None:
    asked = [
        {"id": "keywords:frequency", "keyword": word, "frequency": times, "relation": "at least"}
        for word in words
    ]
    assert all(score < 1.0 for score in family.scores(" ".join(words), asked))
    assert family.scores(" ".join(words * times), asked) == [1.0] * len(words)


@given(n=st.integers(0, 50), low=st.integers(0, 50), width=st.integers(0, 20), scale=st.floats(0.5, 100))
def test_nearness_is_one_exactly_inside_and_falls_outside(n: int, low: int, width: int, scale: float) -> None:
    score = nearness(n, {"scale": scale}, low, low + width)
    assert (score == 1.0) == (low <= n <= low + width)
    further = nearness(n - 1 if n < low else n + 1, {"scale": scale}, low, low + width)
    assert further <= score


@given(text=TEXTS)
def test_parts_of_a_text_are_in_it(text: str) -> None:
    parts = Text(text)
    text = parts.raw  # what of it can be seen
    squeezed = "".join(text.split())
    at = 0
    for word in parts.words:
        at = text.index(word, at) + len(word)
    assert all("".join(sentence.text.split()) in squeezed for sentence in parts.sentences)
    ends = [sentence.end for sentence in parts.sentences]
    assert ends == sorted(ends)
    assert all(has_word(sentence.text) for sentence in parts.sentences)
    assert (not parts.sentences) == (not has_word(text))
