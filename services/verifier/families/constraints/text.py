"""An answer's text taken apart. Invariant: every part comes from one pass over the characters, the same on every machine.

Words are runs of letters, digits and combining marks, with apostrophe or hyphen inside; a Han or kana character is a word of
its own. A sentence ends at `.`, `!`, `?` or their like before white space, at a blank line, or at the end; not after an
abbreviation, an initial or a list number; a piece without a word is no sentence. No tables are loaded, no library guesses.
"""

# ruff: noqa: RUF001 (text is in any script)
from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property

from services.verifier.families.constraints.seen import fold, shape, visible

ENDS = ".!?…。！？‽؟।"
WIDE_ENDS = "。！？।"
"""Marks that end a sentence without white space after them."""
CLOSERS = "\"')]}”’»*_`"
_ABBREVIATIONS = (
    "mr mrs ms dr prof st jr sr vs etc inc ltd co no fig vol dept gen col capt sgt rev hon approx est e.g "
    "i.e a.m p.m u.s u.k ph.d al jan feb mar apr jun jul aug sep sept oct nov dec"
)
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
LOOK_BACK = 12
"""Characters before a full stop that may be an abbreviation."""
MARKS = ("Mn", "Mc", "Me")
JOINERS = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence: its text without the white space around it, where it ends in the answer, and its final mark."""

    text: str
    end: int
    mark: str
    """".", "!", "?" or "" if it ends without one."""


def wide(char: str) -> bool:
    """Whether a character is Han or kana, written without spaces between words."""
    return "\u3041" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff"


def is_mark(char: str) -> bool:
    """Whether a character only changes the one before it."""
    return char > "\u02ff" and (char in JOINERS or unicodedata.category(char) in MARKS)


def split(text: str, *, marks: bool = True) -> list[str]:
    """The words of `text`, in order and as written; `marks=False` knows letters and digits only."""
    found: list[str] = []
    current: list[str] = []
    for index, char in enumerate(text):
        if marks and wide(char):
            if current:
                found.append("".join(current))
                current = []
            found.append(char)
            continue
        inside = False
        if current:
            joins = char in ("'-’" if marks else "'-")
            inside = joins and index + 1 < len(text) and text[index + 1].isalnum()
            inside = inside or (marks and is_mark(char))
        if char.isalnum() or inside:
            current.append(char)
        elif current:
            found.append("".join(current))
            current = []
    if current:
        found.append("".join(current))
    return found


def runs(have: list[str], want: list[str]) -> int:
    """How often the run `want` occurs in `have`, without overlap."""
    found = at = 0
    while at + len(want) <= len(have):
        if have[at : at + len(want)] == want:
            found += 1
            at += len(want)
        else:
            at += 1
    return found


def has_word(text: str) -> bool:
    """Whether there is a letter or digit in `text`."""
    return any(char.isalnum() for char in text)


def sentences(text: str) -> list[Sentence]:
    """The sentences of `text`."""
    found: list[Sentence] = []
    start = at = 0

    def close(end: int, mark: str) -> None:
        piece = text[start:end].strip()
        if has_word(piece):
            found.append(Sentence(piece, end, mark))

    while at < len(text):
        char = text[at]
        if char == "\n" and at + 1 < len(text) and text[at + 1] == "\n":
            close(at, "")
            start = at
            at += 2
        elif char in ENDS:
            first = at
            while at < len(text) and text[at] in ENDS:
                at += 1
            mark = _mark(text[first:at])
            while at < len(text) and text[at] in CLOSERS:
                at += 1
            breaks = at == len(text) or text[at].isspace() or text[first] in WIDE_ENDS
            if breaks and not (at - first == 1 and char == "." and _abbreviated(text, first)):
                close(at, mark)
                start = at
        else:
            at += 1
    close(len(text), "")
    return found


def _mark(run: str) -> str:
    for kind, chars in (("?", "?？؟‽"), ("!", "!！")):
        if any(char in chars for char in run):
            return kind
    return "."


def _abbreviated(text: str, stop: int) -> bool:
    """Whether the full stop at `stop` belongs to an abbreviation, an initial or a list number."""
    first = stop
    while first > 0 and stop - first < LOOK_BACK and (text[first - 1].isalnum() or text[first - 1] == "."):
        first -= 1
    before = text[first:stop]
    if before.isdigit():
        return first == 0 or text[first - 1] == "\n"
    if len(before) == 1 and before.isupper() and before != "I":
        return stop + 2 < len(text) and text[stop + 2].isupper()
    return before.casefold() in ABBREVIATIONS and stop + 1 < len(text)


def base(word: str) -> str:
    """`word` in folded case, its accents dropped."""
    return "".join(char for char in unicodedata.normalize("NFD", word.casefold()) if char.isalnum())


class Text:
    """The answer as far as it can be seen, its parts computed when first asked for."""

    def __init__(self, raw: str) -> None:
        self.raw = visible(raw)

    @cached_property
    def body(self) -> str:
        """Without white space around it."""
        return self.raw.strip()

    @cached_property
    def folded(self) -> str:
        """See seen.fold."""
        return fold(self.raw)

    @cached_property
    def words(self) -> list[str]:
        """As written."""
        return split(self.raw)

    @cached_property
    def low(self) -> list[str]:
        """The words, folded (seen.fold)."""
        return [fold(word) for word in self.words]

    @cached_property
    def bases(self) -> list[str]:
        """The words in folded case and without accents."""
        return [made for made in (base(word) for word in self.words) if made]

    @cached_property
    def lines(self) -> list[str]:
        """The lines with something on them, as written."""
        return [line for line in self.raw.split("\n") if line.strip()]

    @cached_property
    def blocks(self) -> list[str]:
        """Paragraphs apart by blank lines, those with a word in them."""
        found: list[list[str]] = [[]]
        for line in self.raw.split("\n"):
            if line.strip():
                found[-1].append(line)
            elif found[-1]:
                found.append([])
        return [text for text in ("\n".join(lines) for lines in found) if has_word(text)]

    @cached_property
    def sentences(self) -> list[Sentence]:
        """See the module."""
        return sentences(self.raw)

    @cached_property
    def spoken(self) -> list[list[str]]:
        """The words of each sentence, folded."""
        return [[fold(word) for word in split(each.text)] for each in self.sentences]

    @cached_property
    def said(self) -> bool:
        """Whether there is a letter or digit at all."""
        return has_word(self.raw)

    def count(self, phrase: str) -> int:
        """How often `phrase` occurs as a whole run of words, ignoring case; as characters if it has no word."""
        want = [fold(word) for word in split(phrase)]
        return runs(self.low, want) if want else self.folded.count(fold(phrase))

    @cached_property
    def shapes(self) -> list[str]:
        """The folded words as they look (seen.shape)."""
        return [shape(word) for word in self.low]

    def looks(self, phrase: str) -> int:
        """`count`, also of words that only look like those of `phrase`."""
        want = [shape(fold(word)) for word in split(phrase)]
        return runs(self.shapes, want) if want else self.count(phrase)
