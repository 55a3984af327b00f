"""`combination:*`, `startend:*`, `change_case:*`, `punctuation:*`. Invariant: a part of the form earns at most half of it."""

# ruff: noqa: RUF001 (commas of many scripts)
from __future__ import annotations

from typing import Any

from services.verifier import specs
from services.verifier.families.constraints import language
from services.verifier.families.constraints.kinds import (
    Args,
    Kind,
    count,
    passage,
    phrase,
    possible,
    related,
    relation,
    scale,
    share,
)
from services.verifier.families.constraints.lengths import divided
from services.verifier.families.constraints.seen import fold
from services.verifier.families.constraints.text import Text, has_word, split

SIX = 6
"""Asterisks between two responses."""
COMMAS = ",，،、︐﹐"


def _two(text: Text, _: Args) -> float:
    pieces = divided(text.body, SIX)
    if pieces and not pieces[0].strip():
        pieces = pieces[1:]
    if pieces and not pieces[-1].strip():
        pieces = pieces[:-1]
    if len(pieces) != 2 or not all(has_word(piece) for piece in pieces):  # noqa: PLR2004 (two responses)
        return 0.0
    first, second = ([each.casefold() for each in split(piece)] for piece in pieces)
    return float(first != second)


def _repeat(text: Text, args: Args) -> float:
    """Half for the request as it was, the rest if something follows it."""
    want, have = fold(args["prompt_to_repeat"]).split(), text.folded.split()
    if have[: len(want)] != want:
        return 0.0
    return 1.0 if any(has_word(each) for each in have[len(want) :]) else 0.5


def _ends(text: Text, args: Args) -> float:
    return float(_unquoted(text.folded).endswith(_unquoted(fold(args["end_phrase"]))))


def _unquoted(text: str) -> str:
    return text.strip().rstrip('"”').rstrip()


def _ending(value: Any, where: str) -> object:
    if not _unquoted(str(phrase(value, where))):
        raise specs.SpecError(f"{where} {value!r} is nothing but quotes")
    return value


def _quotation(text: Text, _: Args) -> float:
    return float(len(text.body) > 1 and text.body[0] == text.body[-1] == '"')


def _case(text: Text, *, upper: bool) -> float:
    """Share of the letters that have a case and have the right one; 0 if the text is in another language than English."""
    cased = sum(char.isupper() or char.islower() or char.istitle() for char in text.raw)
    right = sum(char.isupper() if upper else char.islower() for char in text.raw)
    return share(right, cased) * float(language.may_be(text.low, "en"))


KINDS: dict[str, Kind] = {
    "combination:two_responses": Kind(_two),
    "combination:repeat_prompt": Kind(_repeat, {"prompt_to_repeat": passage}),
    "startend:end_checker": Kind(_ends, {"end_phrase": _ending}),
    "startend:quotation": Kind(_quotation),
    "change_case:capital_word_frequency": Kind(
        lambda t, a: related(
            sum(each.isupper() for each in t.words), a, "capital_frequency", "capital_relation"
        ),
        {"capital_frequency": count(), "capital_relation": relation},
        {"scale": scale},
        possible("capital_frequency", "capital_relation"),
    ),
    "change_case:english_capital": Kind(lambda t, _: _case(t, upper=True)),
    "change_case:english_lowercase": Kind(lambda t, _: _case(t, upper=False)),
    "punctuation:no_comma": Kind(lambda t, _: float(not any(char in COMMAS for char in t.raw))),
    "language:response_language": Kind(
        lambda t, a: language.score(t.low, a["language"]), {"language": language.rule}
    ),
}
