"""What a spec of constraints may say: unknown ids and arguments, contradictions, credit, and the order of the parts."""

# ruff: noqa: E501 (one case a line)
from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import format as family
from services.verifier.families.constraints import REFUSED
from services.verifier.families.constraints.examples import EXAMPLES
from services.verifier.specs import SpecError


def refusal(*constraints: Any, settings: dict[str, Any] | None = None) -> str:
    with pytest.raises(SpecError) as caught:
        family.check_spec({"constraints": list(constraints)}, settings or {})
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_argument_is_needed_and_no_other_is_known(name: str) -> None:
    args = EXAMPLES[name].args
    assert "unknown key 'extra'" in refusal({"id": name, **args, "extra": 1})
    for missing in args:
        given = {key: value for key, value in args.items() if key != missing}
        assert f"constraints[0].{missing}" in refusal({"id": name, **given}) or "takes either" in refusal(
            {"id": name, **given}
        )
        wrongs: tuple[Any, ...] = (None, True, [], {}, -1, "", float("nan"))
        for wrong in wrongs:
            refusal({"id": name, **args, missing: wrong})


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"id": "keywords:existance", "keywords": ["a"]}, "keywords:existence"),
        ({"id": "x" * 500}, "is no constraint"),
        ({"id": ["keywords:existence"]}, "constraints[0].id must be text"),
        ({}, "constraints[0].id must be text"),
        ("keywords:existence", "must be a table"),
        ({"id": "language:response_language", "language": "tlh"}, "cannot be told apart"),
        ({"id": "keywords:letter_frequency", "letter": "ab", "let_frequency": 1, "let_relation": "at least"}, "one character"),
        ({"id": "keywords:frequency", "keyword": "a", "frequency": 0, "relation": "less than"}, "less than 0"),
        ({"id": "keywords:frequency", "keyword": "a", "frequency": 1, "relation": "around"}, "at least, less than"),
        ({"id": "keywords:frequency", "keyword": "a", "word": "a", "count": 1}, "takes either"),
        ({"id": "count:conjunctions", "small_n": 8}, "there are only 7"),
        ({"id": "format:options", "options": "yes"}, "two or more"),
        ({"id": "format:options", "options": "yes/-"}, "without a letter"),
        ({"id": "startend:end_checker", "end_phrase": ' "" '}, "nothing but quotes"),
        ({"id": "words:words_position", "keyword": "two words"}, "not one word"),
        ({"id": "words:keywords_specific_position", "keyword": "...", "n": 1, "m": 1}, "not one word"),
        ({"id": "repeat:repeat_span", "prompt_to_repeat": "a b", "n_start": 0, "n_end": 2}, "0 to 1"),
        ({"id": "repeat:repeat_span", "prompt_to_repeat": "a b", "n_start": 1, "n_end": 0}, "1 to 0"),
        ({"id": "repeat:repeat_change", "prompt_to_repeat": "a"}, "one word"),
        ({"id": "count:word_count_range", "min_words": 9, "max_words": 8}, "above max_words"),
        ({"id": "length_constraints:nth_paragraph_first_word", "num_paragraphs": 1, "nth_paragraph": 2, "first_word": "a"}, "2 of 1"),
        ({"id": "length_constraints:number_words", "num_words": 10**9, "relation": "at least"}, "is the most"),
        ({"id": "punctuation:no_comma", "weight": 0}, "weight"),
        *(({"id": name}, why) for name, why in REFUSED.items()),
    ],
)  # fmt: skip
def test_a_constraint_at_fault_is_named(constraint: Any, said: str) -> None:
    assert said in refusal(constraint)


def words(n: int, how: str) -> dict[str, Any]:
    return {"id": "length_constraints:number_words", "num_words": n, "relation": how}


LOWER, UPPER = {"id": "change_case:english_lowercase"}, {"id": "change_case:english_capital"}
NO_COMMA, JSON = {"id": "punctuation:no_comma"}, {"id": "detectable_format:json_format"}
REPEAT = {"id": "combination:repeat_prompt", "prompt_to_repeat": "Sing, please, of rain"}
HAVE_RAIN = {"id": "keywords:existence", "keywords": ["heavy rain"]}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (words(10, "at least"), words(10, "less than"), "10 or more against 9 or fewer"),
        (words(10, "exactly"), {"id": "count:word_count_range", "min_words": 11, "max_words": 12}, "against"),
        (words(3, "less than"), {"id": "count:unique_word_count", "N": 3}, "words"),
        (words(3, "less than"), {"id": "detectable_format:number_bullet_lists", "num_bullets": 5}, "bullets"),
        (words(5, "at most"), {"id": "keywords:frequency", "keyword": "a", "frequency": 6, "relation": "at least"}, "word a"),
        ({"id": "ratio:sentence_words"}, {"id": "length_constraints:number_sentences", "num_sentences": 4, "relation": "at least"}, "sentences"),
        (HAVE_RAIN, {"id": "keywords:forbidden_words", "forbidden_words": ["Rain"]}, "'Rain', which is forbidden"),
        (HAVE_RAIN, {"id": "keywords:frequency", "keyword": "Heavy Rain", "frequency": 1, "relation": "less than"}, "word heavy rain"),
        (REPEAT, {"id": "keywords:forbidden_words", "forbidden_words": ["rain"]}, "forbidden"),
        (REPEAT, NO_COMMA, "has a comma"),
        (REPEAT, {"id": "keywords:letter_frequency", "letter": "a", "let_frequency": 2, "let_relation": "less than"}, "too often"),
        (REPEAT, {"id": "startend:quotation"}, "different characters"),
        (REPEAT, JSON, "different characters"),
        (HAVE_RAIN, {"id": "format:no_whitespace"}, "white space"),
        (UPPER, LOWER, "upper"),
        (LOWER, {"id": "change_case:capital_word_frequency", "capital_frequency": 1, "capital_relation": "at least"}, "capitals"),
        (LOWER, {"id": "language:response_language", "language": "fr"}, "in en and in fr"),
        (JSON, {"id": "startend:end_checker", "end_phrase": "Bye."}, "JSON does not end"),
        (JSON, {"id": "detectable_content:postscript", "postscript_marker": "P.S."}, "no line of JSON"),
        (JSON, {"id": "repeat:repeat_simple"}, "whole answer"),
        ({"id": "keywords:letter_frequency", "letter": "E", "let_frequency": 3, "let_relation": "at least"},
         {"id": "keywords:letter_frequency", "letter": "e", "let_frequency": 3, "let_relation": "less than"}, "letter e"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_in_either_order(
    one: dict[str, Any], other: dict[str, Any], said: str
) -> None:
    for pair in ((one, other), (other, one)):
        line = refusal(*pair)
        assert said in line
        assert one["id"] in line
        assert other["id"] in line


@pytest.mark.parametrize(
    "constraints",
    [
        (words(9, "at least"), words(10, "less than")),
        (HAVE_RAIN, {"id": "keywords:forbidden_words", "forbidden_words": ["train"]}),
        (JSON, {"id": "keywords:forbidden_words", "forbidden_words": ["rain"]}, NO_COMMA),
        (UPPER, {"id": "change_case:capital_word_frequency", "capital_frequency": 9, "capital_relation": "less than"}),
        (HAVE_RAIN, HAVE_RAIN, LOWER, NO_COMMA),
        ({"id": "change_case:capital_word_frequency", "capital_frequency": 10, "capital_relation": "less than"},
         {"id": "change_case:capital_word_frequency", "capital_frequency": 1, "capital_relation": "at least"},
         {"id": "startend:quotation"}),
    ],
)  # fmt: skip
def test_what_can_hold_together_is_taken(constraints: tuple[dict[str, Any], ...]) -> None:
    family.check_spec({"constraints": list(constraints)}, {})


def test_too_many_constraints_and_unknown_settings_are_refused() -> None:
    assert "64 are allowed" in refusal(*[NO_COMMA] * 65)
    assert "credit" in refusal(NO_COMMA, settings={"credit": "loose"})
    assert "unknown key" in refusal(NO_COMMA, settings={"kredit": "rate"})


def judged(text: str, constraints: list[dict[str, Any]], settings: dict[str, Any], fixtures: Any) -> Any:
    make_task, limits, scripted = fixtures
    family.check_spec({"constraints": constraints}, settings)
    return family.verify(make_task({"constraints": constraints}), settings, limits, text.encode(), scripted())


@pytest.fixture
def fixtures(make_task: Any, limits: Any, scripted: Any) -> Any:
    return make_task, limits, scripted


def test_an_id_that_stands_there_twice_counts_twice(fixtures: Any) -> None:
    war, peace = (
        {"id": "keywords:frequency", "keyword": word, "frequency": 2, "relation": "at least"}
        for word in ("war", "peace")
    )
    verdict = judged("war war peace", [war, peace], {}, fixtures)
    assert [(part.name, part.score) for part in verdict.parts] == [
        ("keywords:frequency", 1.0),
        ("keywords:frequency", 0.5),
    ]
    assert verdict.score == pytest.approx(0.75)
    assert not verdict.passed


def test_strict_credit_is_all_or_nothing(fixtures: Any) -> None:
    both = [NO_COMMA, words(2, "exactly")]
    assert judged("rain fell", both, {"credit": "strict"}, fixtures).score == 1.0
    missed = judged("rain fell down", both, {"credit": "strict"}, fixtures)
    assert (missed.score, missed.passed) == (0.0, False)
    assert [part.score for part in missed.parts] == [1.0, 0.5]
    assert judged("rain fell down", both, {"credit": "rate"}, fixtures).score == pytest.approx(0.75)


def test_loose_is_for_reports_and_never_below_strict() -> None:
    asked = [{"id": "startend:end_checker", "end_phrase": "rain fell"}, {"id": "startend:quotation"}]
    text = 'Sure, here it is:\n"rain fell"\nI hope this helps.'
    assert family.scores(text, asked) == [0.0, 0.0]
    assert family.loose(text, asked) == [True, True]
    for name, example in EXAMPLES.items():
        assert family.loose(example.good, [{"id": name, **example.args}]) == [True]


def test_the_same_answer_has_the_same_digest(fixtures: Any) -> None:
    asked = [{"id": name, **EXAMPLES[name].args} for name in ("language:response_language", "words:vowel")]
    digests = {judged("la pluie est belle et pas chaude", asked, {}, fixtures).digest for _ in range(5)}
    assert len(digests) == 1
