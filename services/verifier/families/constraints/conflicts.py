"""Constraints that cannot hold together. Invariant: what is refused has no answer at all; what is merely hard is not refused.

Each constraint says what it counts and within which bounds, which texts it wants, and how the answer must start. Bounds that do
not meet, a wanted text that another constraint forbids, and two different starts or whole forms are contradictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.verifier.families.constraints.frame import COMMAS
from services.verifier.families.constraints.kinds import Args, bounds
from services.verifier.families.constraints.text import Text

Bound = tuple[str, float, float]
COUNTED: dict[str, tuple[str, str, str]] = {
    "length_constraints:number_words": ("words", "num_words", "relation"),
    "length_constraints:number_sentences": ("sentences", "num_sentences", "relation"),
    "change_case:capital_word_frequency": ("capitals", "capital_frequency", "capital_relation"),
}
"""id -> what it counts, the argument with the number, the one with the relation."""
EXACT = {
    "length:words": ("words", "count"),
    "length:lines": ("lines", "count"),
    "list:bullets": ("bullets", "count"),
    "detectable_format:number_bullet_lists": ("bullets", "num_bullets"),
    "length_constraints:number_paragraphs": ("parts by ***", "num_paragraphs"),
    "length_constraints:nth_paragraph_first_word": ("paragraphs", "num_paragraphs"),
    "count:numbers": ("numbers", "N"),
}
LEAST = {
    "count:unique_word_count": ("words", "N"),
    "count:person_names": ("words", "N"),
    "count:pronouns": ("words", "N"),
    "count:conjunctions": ("words", "small_n"),
    "count:words_japanese": ("words", "N"),
    "detectable_format:multiple_sections": ("words", "num_sections"),
    "sentence:keyword": ("sentences", "N"),
    "words:keywords_specific_position": ("sentences", "n"),
}
SIZED = {"ratio:sentence_words": ("sentences", 3), "custom:sentence_alphabet": ("sentences", 26)}
WANTED = {
    "startend:end_checker": "end_phrase",
    "combination:repeat_prompt": "prompt_to_repeat",
    "length_constraints:nth_paragraph_first_word": "first_word",
    "detectable_content:postscript": "postscript_marker",
    "sentence:keyword": "word",
    "words:keywords_specific_position": "keyword",
    "words:words_position": "keyword",
}
"""id -> argument with a text that the answer must have, in any case."""
WHOLE = (
    "repeat:repeat_change", "repeat:repeat_simple", "repeat:repeat_span", "format:options",
    "detectable_format:json_format", "custom:multiples", "custom:mcq_count_length",
    "custom:sentence_alphabet", "custom:european_capitals_sort", "custom:csv_city", "custom:csv_special_character",
    "custom:csv_quotes", "custom:date_format_list",
)  # fmt: skip
"""Forms of the whole answer: no answer has two of them."""
JSON = "detectable_format:json_format"
LINES = (
    "list:bullets",
    "detectable_format:number_bullet_lists",
    "detectable_content:postscript",
    "format:list",
)
"""What needs a line that starts with a mark, which no line of JSON does."""
UPPER, LOWER = ("case:upper", "change_case:english_capital"), ("case:lower", "change_case:english_lowercase")
ENGLISH = ("change_case:english_capital", "change_case:english_lowercase")


@dataclass
class Demand:
    """What one constraint asks for."""

    index: int
    id: str
    args: Args
    bounds: list[Bound] = field(default_factory=list)
    wanted: list[tuple[str, int]] = field(default_factory=list)
    """Texts that must occur, and how often."""
    forbidden: list[str] = field(default_factory=list)


def demand(index: int, args: dict[str, Any]) -> Demand:
    """What a constraint asks for, its arguments being in order."""
    name = str(args["id"])
    made = Demand(index, name, args)
    if name in COUNTED:
        measure, number, how = COUNTED[name]
        made.bounds.append((measure, *bounds(args[how], args[number])))
    if name in EXACT:
        made.bounds.append((EXACT[name][0], args[EXACT[name][1]], args[EXACT[name][1]]))
    if name in LEAST:
        made.bounds.append((LEAST[name][0], args[LEAST[name][1]], math.inf))
    if name in SIZED:
        made.bounds.append((SIZED[name][0], SIZED[name][1], SIZED[name][1]))
    if name in WANTED:
        made.wanted.append((args[WANTED[name]], 1))
    if name == "count:word_count_range":
        made.bounds.append(("words", args["min_words"], args["max_words"]))
    if name == "keywords:letter_frequency":
        low, high = bounds(args["let_relation"], args["let_frequency"])
        made.bounds.append((f"letter {args['letter'].casefold()}", low, high))
    made.forbidden += args.get("forbidden_words", []) if name == "keywords:forbidden_words" else []
    made.forbidden += args["words"] if name == "keywords:forbidden" else []
    for word, low, high in _said(name, args):
        made.bounds.append((f"word {' '.join(word.casefold().split())}", low, high))
        made.wanted += [(word, int(low))] if low else []
    return made


def _said(name: str, args: Args) -> Iterator[tuple[str, float, float]]:
    """(word, least, most) times that it must be said."""
    if name == "keywords:existence":
        yield from ((word, 1, math.inf) for word in args.get("keywords", args.get("words", ())))
    elif name == "keywords:frequency" and "keyword" in args:
        yield (args["keyword"], *bounds(args["relation"], args["frequency"]))
    elif name == "keywords:frequency":
        yield (args["word"], args["count"], args["count"])
    elif name == "count:keywords_multiple":
        yield from ((args[f"keyword{i}"], n, n) for i, n in enumerate((1, 2, 3, 5, 7), 1))


def conflict(constraints: Sequence[dict[str, Any]]) -> str | None:
    """One line on the first contradiction among constraints whose arguments are in order, or None."""
    demands = [demand(index, args) for index, args in enumerate(constraints)]
    for found in (*_bounds(demands), *_texts(demands), *_forms(demands), *_cases(demands)):
        return found
    return None


def _both(one: Demand, other: Demand, why: str) -> str:
    return f"constraints[{one.index}] ({one.id}) and [{other.index}] ({other.id}) cannot both hold: {why}"


def _tightest(demands: Sequence[Demand]) -> dict[str, tuple[float, Demand, float, Demand]]:
    """Measure -> (least, who says so, most, who says so)."""
    made: dict[str, tuple[float, Demand, float, Demand]] = {}
    for each in demands:
        for measure, low, high in each.bounds:
            least, by, most, of = made.get(measure, (low, each, high, each))
            least, by = (low, each) if low > least else (least, by)
            most, of = (high, each) if high < most else (most, of)
            made[measure] = (least, by, most, of)
    return made


def _bounds(demands: Sequence[Demand]) -> Iterator[str]:
    tightest = _tightest(demands)
    for measure, (low, by, high, of) in tightest.items():
        if low > high:
            yield _both(by, of, f"{low:g} or more against {high:g} or fewer ({measure})")
    if "words" not in tightest:
        return
    _, _, most, of = tightest["words"]
    for measure, (low, by, _, _) in tightest.items():
        # A word said n times, n sentences and n bullets all need n words at least.
        if low > most and not measure.startswith(("letter", "parts")):
            yield _both(by, of, f"{low:g} ({measure}) need more than {most:g} words")


def _texts(demands: Sequence[Demand]) -> Iterator[str]:
    wanted = [(each, text, Text(text), times) for each in demands for text, times in each.wanted]
    for other in demands:
        for each, text, inside, times in wanted:
            if each is other:
                continue
            banned = next((word for word in other.forbidden if inside.count(word)), None)
            if banned is not None:
                yield _both(each, other, f"it wants {banned!r}, which is forbidden")
            if other.id == "punctuation:no_comma" and any(char in COMMAS for char in text):
                yield _both(each, other, f"{text[:40]!r} has a comma")
            if other.id == "format:no_whitespace" and any(char.isspace() for char in text.strip()):
                yield _both(each, other, f"{text[:40]!r} has white space")
            for measure, _, high in other.bounds:
                letter = measure.removeprefix("letter ")
                if letter != measure and text.casefold().count(letter) * times > high:
                    yield _both(each, other, f"{text[:40]!r} has the letter {letter!r} too often")


def _forms(demands: Sequence[Demand]) -> Iterator[str]:
    whole = [each for each in demands if each.id in WHOLE]
    for each in whole[1:]:
        first = whole[0]
        if first.id != each.id or dict(first.args) | {"weight": 0} != dict(each.args) | {"weight": 0}:
            yield _both(first, each, "each is a form of the whole answer")
    starts = [(each, start) for each in demands if (start := _start(each))]
    for each, start in starts[1:]:
        if not set(start) & set(starts[0][1]):
            yield _both(starts[0][0], each, "they start with different characters")
    for json in (each for each in demands if each.id == JSON):
        for each in demands:
            if each.id in LINES:
                yield _both(json, each, "no line of JSON starts so")
            if each.id == "startend:end_checker" and each.args["end_phrase"].strip()[-1] not in "}]`":
                yield _both(json, each, "JSON does not end so")


def _start(each: Demand) -> str:
    """The characters one of which the answer must start with, "" for any."""
    if each.id == JSON:
        return "{[`"
    if each.id == "startend:quotation":
        return '"'
    if each.id == "combination:repeat_prompt":
        first = str(each.args["prompt_to_repeat"]).strip()[:1]
        return first.casefold() + first
    return ""


def _cases(demands: Sequence[Demand]) -> Iterator[str]:
    upper = next((each for each in demands if each.id in UPPER), None)
    lower = next((each for each in demands if each.id in LOWER), None)
    if upper is not None and lower is not None:
        yield _both(upper, lower, "all letters upper and all lower")
    tightest = _tightest(demands)
    least, by, most, of = tightest.get("capitals", (0.0, None, math.inf, None))
    if lower is not None and by is not None and least > 0:
        yield _both(lower, by, "no capital letters and words in capitals")
    words = tightest.get("words")
    if upper is not None and of is not None and words is not None and words[0] > most:
        yield _both(upper, of, f"{words[0]:g} words or more, all in capitals, against {most:g}")
    asked = [(each, "en") for each in demands if each.id in ENGLISH]
    asked += [(each, each.args["language"]) for each in demands if each.id == "language:response_language"]
    for each, code in asked[1:]:
        if code != asked[0][1]:
            yield _both(asked[0][0], each, f"the answer cannot be in {asked[0][1]} and in {code}")
