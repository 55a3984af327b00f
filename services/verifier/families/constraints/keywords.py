"""`keywords:*`: what must, may and may not be said. Invariant: words count whole and in any case.

Arguments as in the public instruction sets. keywords:existence: share of the keywords that occur. frequency, letter_frequency:
nearness of the count. forbidden_words: share of the words that do not occur, nor any that
looks the same in another script; 0 for an answer without words.
"""

from __future__ import annotations

from services.verifier.families.constraints.kinds import (
    Args,
    Kind,
    count,
    letter,
    nearness,
    one_word,
    phrase,
    phrases,
    possible,
    related,
    relation,
    scale,
    share,
    word,
)
from services.verifier.families.constraints.seen import fold
from services.verifier.families.constraints.text import Text, split

MULTIPLES = (1, 2, 3, 5, 7)
"""How often each of the five words of count:keywords_multiple is wanted."""


def _existence(text: Text, args: Args) -> float:
    return share(sum(text.count(each) > 0 for each in args["keywords"]), len(args["keywords"]))


def _forbidden(text: Text, args: Args) -> float:
    return share(sum(text.looks(each) == 0 for each in args["forbidden_words"]), len(args["forbidden_words"]))


def _letters(text: Text, args: Args) -> float:
    return related(text.folded.count(fold(args["letter"])), args, "let_frequency", "let_relation")


def _multiple(text: Text, args: Args) -> float:
    near = [
        nearness(text.count(args[f"keyword{index}"]), args, times, times)
        for index, times in enumerate(MULTIPLES, 1)
    ]
    return sum(near) / len(near)


def _only(keyword: str) -> str:
    return fold(split(keyword)[0])


def _position(text: Text, args: Args) -> float:
    if len(text.sentences) < args["n"]:
        return 0.0
    said = text.spoken[args["n"] - 1]
    return float(len(said) >= args["m"] and said[args["m"] - 1] == _only(args["keyword"]))


def _second(text: Text, args: Args) -> float:
    if len(text.low) < 3:  # noqa: PLR2004 (a second word that is not also the last)
        return 0.0
    want = _only(args["keyword"])
    return ((text.low[1] == want) + (text.low[-2] == want)) / 2


def _in_sentence(text: Text, args: Args) -> float:
    if len(text.sentences) < args["N"]:
        return 0.0
    return float(Text(text.sentences[args["N"] - 1].text).count(args["word"]) > 0)


KINDS: dict[str, Kind] = {
    "keywords:existence": Kind(_existence, {"keywords": phrases}),
    "keywords:frequency": Kind(
        lambda t, a: related(t.count(a["keyword"]), a, "frequency", "relation"),
        {"keyword": phrase, "frequency": count(), "relation": relation},
        {"scale": scale},
        possible("frequency", "relation"),
    ),
    "keywords:forbidden_words": Kind(_forbidden, {"forbidden_words": phrases}),
    "keywords:letter_frequency": Kind(
        _letters,
        {"letter": letter, "let_frequency": count(), "let_relation": relation},
        {"scale": scale},
        possible("let_frequency", "let_relation"),
    ),
    "count:keywords_multiple": Kind(_multiple, {f"keyword{index}": word for index in range(1, 6)}),
    "words:keywords_specific_position": Kind(_position, {"keyword": one_word, "n": count(1), "m": count(1)}),
    "words:words_position": Kind(_second, {"keyword": one_word}),
    "sentence:keyword": Kind(_in_sentence, {"word": phrase, "N": count(1)}),
}
