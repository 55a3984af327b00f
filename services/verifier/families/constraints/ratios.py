"""`ratio:*` and counts of listed things. Invariant: what is to be balanced must occur; 0 is in no ratio to 0.

stop_words, overlap: nearness in percentage points. sentence_type: two statements a question. sentence_balance: least over most
of statements, questions, exclamations. sentence_words: three sentences of one length in characters, no word twice.
"""

# ruff: noqa: RUF001 (apostrophes of both kinds)
from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from services.verifier import specs
from services.verifier.families.constraints.kinds import (
    Args,
    Kind,
    count,
    nearness,
    passage,
    percent,
    scale,
    share,
)
from services.verifier.families.constraints.seen import fold
from services.verifier.families.constraints.stopwords import STOPWORDS
from services.verifier.families.constraints.text import Text, split, wide

_STOP = (
    "i me my we our us he him she her them a am were being do does did having no nor so too very just don now these "
    "those such some any each few most other own same then once here why how where while because until against "
    "between through during before after above below up down out off over under again further all both myself "
    "yourself himself herself itself themselves ours yours hers theirs whom could should may might must"
)
STOP = STOPWORDS["latin"]["en"] | frozenset(_STOP.split())
"""English words that carry little meaning by themselves."""
CONJUNCTIONS = frozenset(("and", "but", "for", "nor", "or", "so", "yet"))
NAMES = (
    "Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo "
    "Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla "
    "Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan"
)
"""The names that the public prompt of count:person_names lists."""
_PRONOUNS = (
    "i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself "
    "ourselves yourself yourselves himself herself itself themselves this that these those who whom whose which "
    "what whoever whomever whatever whichever anybody anyone anything everybody everyone everything nobody nothing "
    "somebody someone something each either neither both all some any none"
)
PRONOUNS = frozenset(_PRONOUNS.split())
MARKS = ".,!?;:"
INTERROBANGS = ("?!", "!?", "‽")
BAND = 2.0
"""Percentage points that an overlap may be off."""
TRIO = 3


def _types(text: Text) -> Counter[str]:
    return Counter(sentence.mark for sentence in text.sentences)


def _type(text: Text, args: Args) -> float:
    marks = _types(text)
    return nearness(marks["."], args, 2 * marks["?"], 2 * marks["?"]) if marks["?"] else 0.0


def _balance(text: Text, _: Args) -> float:
    marks = _types(text)
    each = [marks[mark] for mark in ".?!"]
    return share(min(each), max(each))


def _stop_words(text: Text, args: Args) -> float:
    return nearness(
        100.0 * share(sum(word in STOP for word in text.low), len(text.low)), args, 0, args["percentage"]
    )


def _trigrams(words: list[str]) -> set[tuple[str, ...]]:
    return set(zip(words, words[1:], words[2:], strict=False))


def _overlap(text: Text, args: Args) -> float:
    have = _trigrams(text.low)
    want = _trigrams([fold(word) for word in split(args["reference_text"])])
    if not have:
        return 0.0
    found, wanted = 100.0 * len(have & want) / len(have), args["percentage"]
    return nearness(found, args, wanted - BAND, wanted + BAND)


def _trio(text: Text, _: Args) -> float:
    """A third each for three sentences, one length, no word twice; the last two only if there are three sentences."""
    if len(text.sentences) != TRIO:
        return 0.0
    lengths = {len(sentence.text) for sentence in text.sentences}
    return (1 + (len(lengths) == 1) + (len(set(text.low)) == len(text.low))) / TRIO


def numbers(text: str) -> list[str]:
    """The numbers written in digits, `1,234.5` being one, without their separators."""
    found: list[str] = []
    parts: list[str] = []
    for index, char in enumerate(text):
        if char.isdecimal():
            parts.append(char)
        elif not (char in ".," and parts and index + 1 < len(text) and text[index + 1].isdecimal()):
            if parts:
                found.append("".join(parts))
            parts = []
    return [*found, "".join(parts)] if parts else found


def _punctuation(text: Text, _: Args) -> float:
    body, interrobang = text.raw, False
    for mark in INTERROBANGS:
        if mark in body:
            body, interrobang = body.replace(mark, "", 1), True
            break
    return (sum(mark in body for mark in MARKS) + interrobang) / (len(MARKS) + 1)


def _japanese(text: Text, args: Args) -> float:
    nth = text.raw.split()[args["N"] - 1 :: args["N"]]
    return share(sum(any(wide(char) for char in each) for each in nth), len(nth))


def _pronouns(text: Text, args: Args) -> float:
    return nearness(sum(word.split("'")[0].split("’")[0] in PRONOUNS for word in text.low), args, args["N"])


def _most(name: str, most: int) -> Callable[[Args, str], object]:
    """A rule for all arguments: there are only `most` of them."""

    def rule(args: Args, where: str) -> object:
        if args[name] > most:
            raise specs.SpecError(f"{where}.{name} is {args[name]}, there are only {most}")
        return None

    return rule


SCALE = {"scale": scale}
N = {"N": count(1)}
KINDS: dict[str, Kind] = {
    "ratio:stop_words": Kind(_stop_words, {"percentage": percent}, SCALE),
    "ratio:sentence_type": Kind(_type),
    "ratio:sentence_balance": Kind(_balance),
    "ratio:overlap": Kind(_overlap, {"reference_text": passage, "percentage": percent}, SCALE),
    "ratio:sentence_words": Kind(_trio),
    "count:conjunctions": Kind(
        lambda t, a: nearness(len(CONJUNCTIONS & set(t.low)), a, a["small_n"]),
        {"small_n": count(1)},
        SCALE,
        _most("small_n", len(CONJUNCTIONS)),
    ),
    "count:person_names": Kind(
        lambda t, a: nearness(len(frozenset(NAMES.split()) & set(t.words)), a, a["N"]),
        N,
        SCALE,
        _most("N", 50),
    ),
    "count:numbers": Kind(
        lambda t, a: nearness(len(numbers(t.raw)), a, a["N"], a["N"]), {"N": count()}, SCALE
    ),
    "count:punctuation": Kind(_punctuation),
    "count:pronouns": Kind(_pronouns, N, SCALE),
    "count:words_japanese": Kind(_japanese, N),
}
