r"""Regular expressions in time linear in the text. Invariant: a pattern that is accepted means what ECMA-262 says, or is refused.

Syntax: literals, `.`, classes, \d \w \s and their opposites, groups, `|`, `* + ? {m,n}`, and `^ $` at the ends of the whole
pattern and of its branches. Look-around, back references, flags and word boundaries are refused: they need backtracking. `\d`,
`\w` and `\s` are ASCII but for the blanks that ECMA-262 names.
"""

from __future__ import annotations

from functools import lru_cache

from services.verifier.families.automaton import Pattern, Piece, Test

MAX_STATES = 500
MAX_PATTERN = 1000
MAX_REPEAT = 256
MAX_NEST = 32
MAX_READS = 20_000
"""Characters of pattern read, those of counted repeats each time."""
DIGIT: Test = "0123456789".__contains__
WORD: Test = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_".__contains__
SPACE: Test = " \t\n\r\f\v\u00a0\ufeff\u2028\u2029".__contains__
CLASSES: dict[str, Test] = {
    "d": DIGIT, "w": WORD, "s": SPACE,
    "D": lambda char: not DIGIT(char), "W": lambda char: not WORD(char), "S": lambda char: not SPACE(char),
}  # fmt: skip
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
HEX = {"x": 2, "u": 4}
"""Escapes by code, with their number of hexadecimal digits."""


class PatternError(ValueError):
    """A pattern that this engine does not run; the message says what in it."""


class _Reader:
    """Recursive descent over one pattern, filling a Pattern's positions."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.made = text, 0, Pattern()
        self.nest = self.reads = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        char = self.peek()
        self.reads += 1
        if not char or self.reads > MAX_READS:
            raise PatternError("ends too early" if not char else "counted repeats are nested too deep")
        self.at += 1
        return char

    def branch(self) -> Piece:
        made = Piece(0, 0, empty=True)
        while self.peek() not in ("", "|", ")", "$"):
            made = self.made.then(made, self.repeated())
        return made

    def repeated(self) -> Piece:
        begin = self.at
        made = self.atom()
        while (bounds := self.bounds()) is not None:
            end, (low, high) = self.at, bounds
            made = self.times(made, begin, low, high)
            self.at = end
            if self.peek() in ("?", "+") and self.peek():
                if self.peek() == "+":
                    raise PatternError("possessive quantifiers are not supported")
                self.at += 1  # a lazy one matches the same texts
            if self.peek() in ("*", "{"):
                raise PatternError("a quantifier follows a quantifier")
        return made

    def bounds(self) -> tuple[int, int | None] | None:
        signs: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in signs and self.peek():
            return signs[self.take()]
        if self.peek() != "{":
            return None
        inside, brace, _ = self.text[self.at + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not brace or not _digits(low) or (high and not _digits(high)):
            raise PatternError("`{` must begin {m}, {m,} or {m,n}; write \\{ for the sign")
        self.at += len(inside) + 2
        top = int(high) if high else None if comma else int(low)
        if int(low) > MAX_REPEAT or (top or 0) > MAX_REPEAT or (top is not None and top < int(low)):
            raise PatternError(f"{{{inside}}} counts down, or beyond {MAX_REPEAT}")
        return int(low), top

    def times(self, made: Piece, begin: int, low: int, high: int | None) -> Piece:
        """`made`, read from `begin` on, `low` to `high` times: each time beyond the first is read anew as its own positions."""
        end = self.at
        if high is None:
            self.made.link(made.last, made.first)
            pieces = [made] + [self.again(begin) for _ in range(max(0, low - 1))]
            pieces = [*pieces[1:], pieces[0]]
        elif high == 0:
            return Piece(0, 0, empty=True)
        else:
            pieces = [made] + [self.again(begin) for _ in range(high - 1)]
        self.at = end
        found = Piece(0, 0, empty=True)
        for index, piece in enumerate(pieces):
            optional = index >= low
            found = self.made.then(found, Piece(piece.first, piece.last, empty=piece.empty or optional))
        return found

    def again(self, begin: int) -> Piece:
        self.at = begin
        return self.atom()

    def atom(self) -> Piece:
        char = self.take()
        if char == "(":
            return self.group()
        if char == "[":
            return self.place(self.bracket())
        if char == ".":
            return self.place(lambda each: each not in "\n\r\u2028\u2029")
        if char == "\\":
            found = self.escape()
            return self.place(found if callable(found) else found.__eq__)
        if char in "*+?{":
            raise PatternError(f"`{char}` has nothing to repeat")
        if char in "^$":
            raise PatternError("`^` and `$` may only stand at the ends of the pattern")
        return self.place(char.__eq__)

    def group(self) -> Piece:
        self.nest += 1
        if self.nest > MAX_NEST:
            raise PatternError(f"groups nested deeper than {MAX_NEST}")
        if self.peek() == "?":
            self.at += 1
            if self.take() != ":":
                raise PatternError("of the `(?` forms only (?:...) is supported")
        made = self.branch()
        while self.peek() == "|":
            self.at += 1
            other = self.branch()
            made = Piece(made.first | other.first, made.last | other.last, empty=made.empty or other.empty)
        if self.take() != ")":
            raise PatternError("`$` may only stand at the end of the pattern")
        self.nest -= 1
        return made

    def escape(self) -> str | Test:
        char = self.take()
        if char in CLASSES:
            return CLASSES[char]
        if char in CONTROLS:
            return CONTROLS[char]
        if char in HEX:
            code = self.text[self.at : self.at + HEX[char]]
            if len(code) != HEX[char] or not all(each in "0123456789abcdefABCDEF" for each in code):
                raise PatternError(f"\\{char} needs {HEX[char]} hexadecimal digits")
            self.at += len(code)
            return chr(int(code, 16))
        if char.isalnum():
            raise PatternError(f"\\{char} is not supported")
        return char

    def bracket(self) -> Test:
        negated = self.peek() == "^"
        self.at += negated
        single: set[str] = set()
        tests: list[Test] = []
        ranges: list[tuple[str, str]] = []
        while self.peek() != "]":
            char = self.take()
            low = self.escape() if char == "\\" else char
            if callable(low):
                tests.append(low)
                continue
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                char = self.take()
                high = self.escape() if char == "\\" else char
                if callable(high) or high < low:
                    raise PatternError("a range in brackets counts down or ends in a class")
                ranges.append((low, high))
            else:
                single.add(low)
        self.at += 1

        def test(each: str) -> bool:
            inside = each in single or any(a <= each <= b for a, b in ranges) or any(of(each) for of in tests)
            return inside != negated

        return test

    def place(self, test: Test) -> Piece:
        if len(self.made.tests) >= MAX_STATES:
            raise PatternError(f"more than {MAX_STATES} positions, counted repeats written out")
        return self.made.place(test)


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4  # noqa: PLR2004 (MAX_REPEAT has three)


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """The pattern ready to search with.

    Raises:
        PatternError: a syntax fault, or a form that this engine does not run.
    """
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"{len(pattern)} characters, {MAX_PATTERN} are allowed")
    reader = _Reader(pattern)
    made = reader.made
    first = last = heads = tails = 0
    while True:
        head = reader.peek() == "^"
        reader.at += head
        piece = reader.branch()
        tail = reader.peek() == "$"
        reader.at += tail
        # A branch has positions of its own, so an anchor can be kept as a property of them.
        heads |= piece.first if head else 0
        tails |= piece.last if tail else 0
        first, last = first | piece.first, last | piece.last
        if piece.empty:
            made.bare |= not (head and tail)
            made.hollow = True
        if reader.peek() != "|":
            break
        reader.at += 1
    if reader.at != len(pattern):
        raise PatternError(f"`{reader.peek()}` at character {reader.at} is out of place")
    made.whole, made.heads, made.tails = Piece(first, last, empty=made.bare), heads, tails
    return made
