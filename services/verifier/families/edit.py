"""Edit distance and ANLS. Invariant: work is bounded by the texts' lengths and charged before it is done, never after.

The distance is Myers' bit-parallel form (J. ACM 46(3), 1999, after Hyyrö 2001): one step a character of the shorter text.
"""

from __future__ import annotations

from services.verifier.values import ValueFormatError

WORTH = 0.5
"""ANLS below this counts nothing (DocVQA, arXiv 2007.00398)."""
WIDE = 512
"""Bits that a step handles for about the price of one."""


WORK = 2_500_000
"""Steps for one answer."""
FAIR = 1_200_000
"""Steps that an answer equal to what is wanted may need at most; a spec that needs more is refused."""


class Work:
    """A budget of comparison steps, so that a hostile answer costs a bounded time and always the same verdict."""

    def __init__(self, limit: int = WORK) -> None:
        """`limit`: steps; about a microsecond each."""
        self.left = limit

    def spend(self, steps: int) -> None:
        """Raises ValueFormatError when the budget is used up."""
        self.left -= steps
        if self.left < 0:
            raise ValueFormatError("the answer is too large to be compared with what is wanted")


def distance(a: str, b: str) -> int:
    """Least number of characters to insert, delete or replace that turns `a` into `b`."""
    if len(a) < len(b):
        a, b = b, a
    if not b:
        return len(a)
    where: dict[str, int] = {}
    for index, char in enumerate(a):
        where[char] = where.get(char, 0) | (1 << index)
    full, top = (1 << len(a)) - 1, 1 << (len(a) - 1)
    rises, falls, found = full, 0, len(a)
    get = where.get
    for char in b:
        match = get(char, 0)
        vertical = match | falls
        level = (((match & rises) + rises) ^ rises) | match
        up = falls | (full ^ ((level | rises) & full))
        down = rises & level
        if up & top:
            found += 1
        elif down & top:
            found -= 1
        up = ((up << 1) | 1) & full
        rises = ((down << 1) | (full ^ ((vertical | up) & full))) & full
        falls = up & vertical
    return found


def price(one: int, other: int) -> int:
    """Steps that texts of these lengths take."""
    return min(one, other) * (1 + max(one, other) // WIDE)


def anls(a: str, b: str, work: Work | None = None) -> float:
    """1 - distance / longer length, 0 below WORTH; 1 for two empty texts. Raises ValueFormatError if `work` runs out."""
    if a == b:
        return 1.0
    shorter, longer = sorted((len(a), len(b)))
    # More than twice as long cannot reach one half; this also bounds the work by the wanted text.
    if shorter * 2 < longer:
        return 0.0
    if work is not None:
        work.spend(price(shorter, longer))
    value = 1.0 - distance(a, b) / longer
    return value if value >= WORTH else 0.0
