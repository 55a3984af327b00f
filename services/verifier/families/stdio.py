"""What a program printed against what is wanted. Invariant: pure, linear in the text; no token stands for another by chance.

`tokens`: runs of non-blank characters in order; a token that is wanted as a decimal fraction may differ within the absolute
or the relative tolerance, an integer and a word never (a number that is not finite has no neighbours). `lines`: equal but
for blanks at the ends of lines and blank lines at the end. `exact`: equal bytes.
"""

from __future__ import annotations

import math
import re
from typing import Any

from services.verifier import specs
from services.verifier.values import shown

MODES = ("tokens", "lines", "exact")
SETTINGS = ("compare", "abs_tol", "rel_tol", "ignore_case")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z", re.ASCII)
WHOLE = re.compile(r"[+-]?\d+\Z", re.ASCII)
LONGEST = 400
"""Characters of a token that may be a number."""


def check(settings: dict[str, Any]) -> None:
    """`compare`: the mode, "tokens" by default; `abs_tol`, `rel_tol`: default 0; `ignore_case`. Raises SpecError."""
    mode = specs.choice(settings.get("compare", "tokens"), MODES, "verifier.settings.compare")
    for key in ("abs_tol", "rel_tol"):
        if (
            specs.number(settings.get(key, 0.0), f"verifier.settings.{key}", low=0.0, high=1.0) > 0
            and mode != "tokens"
        ):
            raise specs.SpecError(f'verifier.settings.{key} has a meaning for compare = "tokens" only')
    if not isinstance(settings.get("ignore_case", False), bool):
        raise specs.SpecError("verifier.settings.ignore_case must be true or false")
    if settings.get("ignore_case") and mode == "exact":
        raise specs.SpecError('verifier.settings.ignore_case contradicts compare = "exact"')


def difference(got: bytes, want: str, settings: dict[str, Any]) -> str:
    """Why `got` is not what is wanted, in one line; empty if it is."""
    mode = settings.get("compare", "tokens")
    if mode == "exact":
        return "" if got == want.encode("utf-8") else "the output differs"
    try:
        text = got.decode("utf-8")
    except UnicodeDecodeError:
        return "the output is not UTF-8"
    if settings.get("ignore_case", False):
        text, want = text.casefold(), want.casefold()
    if mode == "lines":
        return _first("line", _lines(text), _lines(want), lambda a, b: a == b)
    abs_tol, rel_tol = float(settings.get("abs_tol", 0.0)), float(settings.get("rel_tol", 0.0))
    return _first("token", text.split(), want.split(), lambda a, b: same_token(a, b, abs_tol, rel_tol))


def same_token(got: str, want: str, abs_tol: float, rel_tol: float) -> bool:
    """Whether one token stands for the other."""
    if got == want:
        return True
    if not (abs_tol or rel_tol) or WHOLE.match(want) or max(len(got), len(want)) > LONGEST:
        return False
    if not (NUMBER.match(got) and NUMBER.match(want)):
        return False
    a, b = float(got), float(want)
    if not (math.isfinite(a) and math.isfinite(b)):
        return False
    return abs(a - b) <= abs_tol or abs(a - b) <= rel_tol * abs(b)


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _first(what: str, got: list[str], want: list[str], same: Any) -> str:
    for index, (a, b) in enumerate(zip(got, want, strict=False)):
        if not same(a, b):
            return f"{what} {index + 1} is {shown(a)}, expected {shown(b)}"
    return "" if len(got) == len(want) else f"{len(got)} {what}s, expected {len(want)}"
