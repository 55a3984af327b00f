"""`length_constraints:*` and other counts. Invariant: the score falls in a straight line with the distance from what was wanted.

Paragraphs of number_paragraphs stand apart by a line or mark `***`; those of nth_paragraph_first_word by blank lines.
"""

from __future__ import annotations

from services.verifier import specs
from services.verifier.families.constraints.kinds import (
    Args,
    Kind,
    count,
    nearness,
    possible,
    related,
    relation,
    scale,
    share,
    word,
)
from services.verifier.families.constraints.text import Text, has_word, split

DIVIDER = "***"


def divided(text: str, stars: int) -> list[str]:
    """The pieces of `text` between runs of exactly `stars` asterisks."""
    pieces: list[str] = []
    start = at = 0
    while (at := text.find("*", at)) >= 0:
        end = at
        while end < len(text) and text[end] == "*":
            end += 1
        if end - at == stars:
            pieces.append(text[start:at])
            start = end
        at = end
    return [*pieces, text[start:]]


def _paragraphs(text: Text, args: Args) -> float:
    pieces = divided(text.body, len(DIVIDER))
    full = sum(has_word(piece) for piece in pieces)
    # A divider at either end parts nothing; an empty paragraph between two dividers is none.
    inner = pieces[1 if not pieces[0].strip() else 0 : -1 if not pieces[-1].strip() else None]
    return nearness(full, args, args["num_paragraphs"], args["num_paragraphs"]) * share(full, len(inner))


def _nth(text: Text, args: Args) -> float:
    near = nearness(len(text.blocks), args, args["num_paragraphs"], args["num_paragraphs"])
    if len(text.blocks) < args["nth_paragraph"]:
        return near / 2
    want = [each.casefold() for each in split(args["first_word"])]
    have = [each.casefold() for each in split(text.blocks[args["nth_paragraph"] - 1])]
    return (near + float(have[: len(want)] == want)) / 2


def _within(args: Args, where: str) -> None:
    if args["nth_paragraph"] > args["num_paragraphs"]:
        raise specs.SpecError(
            f"{where}.nth_paragraph is {args['nth_paragraph']} of {args['num_paragraphs']} paragraphs"
        )


def _ordered(args: Args, where: str) -> None:
    if args["min_words"] > args["max_words"]:
        raise specs.SpecError(f"{where}.min_words {args['min_words']} is above max_words {args['max_words']}")


KINDS: dict[str, Kind] = {
    "length_constraints:number_words": Kind(
        lambda t, a: related(len(t.words), a, "num_words", "relation"),
        {"num_words": count(), "relation": relation},
        {"scale": scale},
        possible("num_words", "relation"),
    ),
    "length_constraints:number_sentences": Kind(
        lambda t, a: related(len(t.sentences), a, "num_sentences", "relation"),
        {"num_sentences": count(), "relation": relation},
        {"scale": scale},
        possible("num_sentences", "relation"),
    ),
    "length_constraints:number_paragraphs": Kind(_paragraphs, {"num_paragraphs": count(1)}, {"scale": scale}),
    "length_constraints:nth_paragraph_first_word": Kind(
        _nth,
        {"num_paragraphs": count(1), "nth_paragraph": count(1), "first_word": word},
        {"scale": scale},
        _within,
    ),
    "count:word_count_range": Kind(
        lambda t, a: nearness(len(t.words), a, a["min_words"], a["max_words"]),
        {"min_words": count(), "max_words": count(1)},
        {"scale": scale},
        _ordered,
    ),
    "count:unique_word_count": Kind(
        lambda t, a: nearness(len(set(t.low)), a, a["N"]), {"N": count(1)}, {"scale": scale}
    ),
}
