"""`words:*` and `sentence:*`: rules between neighbours or for every word. Invariant: one word alone is in no order.

Score: share of the words, pairs of neighbours, or sentences that keep the rule; 0 where there is nothing to compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from services.verifier.families.constraints.kinds import Args, Kind, count, nearness, scale, share
from services.verifier.families.constraints.text import Text, split

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
VOWELS = frozenset("aeiou")
CONSONANTS = frozenset(ALPHABET) - VOWELS
PALINDROMES, SHORTEST = 10, 5
VOWEL_TYPES, ALL_VOWELS = 3, 2.0
"""Types of vowel allowed, and how many more make the score 0."""


def pairs[T](items: Sequence[T], keeps: Callable[[T, T], bool]) -> float:
    """Share of the neighbours in `items` for which `keeps` holds."""
    return share(sum(keeps(a, b) for a, b in pairwise(items)), len(items) - 1)


def _alphabet(text: Text, _: Args) -> float:
    def follows(a: str, b: str) -> bool:
        at, after = ALPHABET.find(a[0]), ALPHABET.find(b[0])
        return at >= 0 and after == (at + 1) % len(ALPHABET)

    return pairs(text.bases, follows)


def _vowels(text: Text, _: Args) -> float:
    if len(text.lines) != 1:
        return 0.0
    used = {char for word in text.bases for char in word} & VOWELS
    return nearness(len(used), {"scale": ALL_VOWELS}, 1, VOWEL_TYPES)


def _clusters(text: Text, _: Args) -> float:
    words = text.bases
    return share(
        sum(any(a in CONSONANTS and b in CONSONANTS for a, b in pairwise(w)) for w in words),
        len(words),
    )


def _palindromes(text: Text, args: Args) -> float:
    found = {
        word
        for word in text.bases
        if len(word) >= SHORTEST and word == word[::-1] and word.isalpha() and len(set(word)) > 1
    }
    return nearness(len(found), args, PALINDROMES)


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, int(n**0.5) + 1))


def _primes(text: Text, _: Args) -> float:
    lengths = [sum(char.isalnum() for char in word) for word in text.words]
    return share(sum(_is_prime(length) for length in lengths), len(lengths))


def _repeats(text: Text, args: Args) -> float:
    extra = sum(max(0, times - args["small_n"]) for times in Counter(text.low).values())
    return 1.0 - share(extra, len(text.low))


def _paragraphs(text: Text, _: Args) -> float:
    lines = [words for words in ([w.casefold() for w in split(line)] for line in text.lines) if words]
    return share(sum(len(words) > 1 and words[0] == words[-1] for words in lines), len(lines))


def _alliteration(words: list[str]) -> int:
    """Words that start as a neighbour does."""
    starts = [word[0] for word in words]
    return sum(
        (i > 0 and starts[i - 1] == start) or starts[i + 1 : i + 2] == [start]
        for i, start in enumerate(starts)
    )


KINDS: dict[str, Kind] = {
    "words:alphabet": Kind(_alphabet),
    "words:vowel": Kind(_vowels),
    "words:consonants": Kind(_clusters),
    "words:palindrome": Kind(_palindromes, {}, {"scale": scale}),
    "words:prime_lengths": Kind(_primes),
    "words:repeats": Kind(_repeats, {"small_n": count(1)}),
    "words:last_first": Kind(lambda t, _: pairs(t.spoken, lambda a, b: a[-1] == b[0])),
    "words:paragraph_last_first": Kind(_paragraphs),
    "words:no_consecutive": Kind(lambda t, _: pairs(t.bases, lambda a, b: a[0] != b[0])),
    "sentence:increment": Kind(
        lambda t, a: pairs([len(words) for words in t.spoken], lambda m, n: n == m + a["small_n"]),
        {"small_n": count(1)},
    ),
    "sentence:alliteration_increment": Kind(
        lambda t, _: pairs([_alliteration(words) for words in t.spoken], lambda m, n: n > m)
    ),
}
