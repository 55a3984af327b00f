"""A position automaton (Glushkov 1961). Invariant: a search costs at most positions times characters, whatever the pattern.

A set of positions is a bit mask. State sets are met lazily and remembered, so that most texts cost one look-up a character.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

CACHED = 20_000
"""State sets and characters remembered in one search; then the memory starts anew."""
Test = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the automaton: sets of positions as bit masks, and whether it matches the empty text."""

    first: int
    last: int
    empty: bool


@dataclass(slots=True)
class Pattern:
    """A compiled pattern."""

    tests: list[Test] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)
    whole: Piece = Piece(0, 0, empty=True)
    heads: int = 0
    """Positions that may only begin at the start of the text."""
    tails: int = 0
    """Positions that may only end at the end of the text."""
    bare: bool = False
    """Whether it matches nothing at some place of any text, and so any text."""
    hollow: bool = False
    """Whether it matches the empty text."""

    def search(self, text: str) -> bool:
        """Whether the pattern matches somewhere in `text`."""
        if self.bare or (self.hollow and not text):
            return True
        begin, ends = self.whole.first & ~self.heads, self.whole.last & ~self.tails
        known: dict[tuple[int, str], int] = {}
        active, start = 0, self.whole.first
        for char in text:
            key = (active if start == begin else -active - 1, char)
            found = known.get(key)
            if found is None:
                if len(known) >= CACHED:
                    known.clear()
                found = known[key] = self._step(active, start, char)
            active, start = found, begin
            if active & ends:
                return True
        return bool(active & self.whole.last)

    def _step(self, active: int, start: int, char: str) -> int:
        reached, rest = start, active
        while rest:
            low = rest & -rest
            reached |= self.follow[low.bit_length() - 1]
            rest ^= low
        found = 0
        while reached:
            low = reached & -reached
            if self.tests[low.bit_length() - 1](char):
                found |= low
            reached ^= low
        return found

    def place(self, test: Test) -> Piece:
        """A new position for characters that pass `test`."""
        self.tests.append(test)
        self.follow.append(0)
        bit = 1 << (len(self.tests) - 1)
        return Piece(bit, bit, empty=False)

    def then(self, one: Piece, two: Piece) -> Piece:
        """`one` followed by `two`."""
        self.link(one.last, two.first)
        return Piece(
            one.first | (two.first if one.empty else 0),
            two.last | (one.last if two.empty else 0),
            empty=one.empty and two.empty,
        )

    def link(self, ends: int, begins: int) -> None:
        """Let each position of `begins` follow each of `ends`."""
        while ends:
            low = ends & -ends
            self.follow[low.bit_length() - 1] |= begins
            ends ^= low
