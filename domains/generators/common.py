"""Shared draws of the demo generators. Invariant: prompts and answers keep sizes a byte-level model learns.

Every generator has three levels, taken from the difficulty; each has a thousand distinct prompts or more.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from schemas.tasks import Sample

PROMPT_BYTES = 40
"""Longest prompt, the end mark included."""
ANSWER_BYTES = 36
"""Longest gold answer or slip."""
END = ">"
"""Last character of every prompt: the answer starts after it."""

EASY, MIDDLE, HARD = 0, 1, 2
"""Levels; they also index tables of sizes."""
HALF = 0.5
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Words with a meaning in Python or in the shell would make a name that cannot be used as one.
RESERVED = frozenset(
    """
    as if in is or and def del for not try elif else from pass with None True False cp mv rm ls id
    do fi dd cd sh sed cat tee who let set len int str max min sum abs all any bin chr dir hex map
    oct ord pow zip case done echo exit fold grep head sort tail test then time type uniq wait kill
    list dict eval exec hash iter next open
    """.split()  # noqa: SIM905
)


def level(difficulty: float) -> int:
    """EASY, MIDDLE or HARD: the third of [0, 1] that the difficulty lies in."""
    return min(HARD, int(difficulty * 3))


def coin(rng: random.Random) -> bool:
    """True half of the time."""
    return rng.random() < HALF


def name(rng: random.Random, length: int, *, avoid: Iterable[str] = ()) -> str:
    """A random lower-case name of `length` letters that is no reserved word and not in `avoid`."""
    taken = set(avoid)
    while True:
        drawn = "".join(rng.choice(LETTERS) for _ in range(length))
        if drawn not in RESERVED and drawn not in taken:
            return drawn


def names(rng: random.Random, length: int, count: int) -> list[str]:
    """`count` different names of `length` letters."""
    drawn: list[str] = []
    for _ in range(count):
        drawn.append(name(rng, length, avoid=drawn))
    return drawn


def sample(
    difficulty: float, prompt: str, gold: str, spec: dict[str, Any], slips: Iterable[str], *, kind: str = ""
) -> Sample:
    """The sample of a prompt without its end mark; slips equal to the gold answer or each other are dropped.

    Raises:
        ValueError: a prompt or an answer that is too long, empty or not printable ASCII.
    """
    prompt += END
    wrong = tuple(slip for slip in dict.fromkeys(slips) if slip != gold)
    for text, bound in ((prompt, PROMPT_BYTES), *((answer, ANSWER_BYTES) for answer in (gold, *wrong))):
        plain = text.replace("\n", "")
        if not plain or not plain.isascii() or not plain.isprintable() or len(text) > bound:
            raise ValueError(f"generator made {text!r}: want 1 to {bound} printable ASCII characters")
    return Sample(prompt=prompt, spec=spec, gold=gold, slips=wrong, difficulty=difficulty, kind=kind)
