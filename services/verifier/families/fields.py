"""Typed values of document fields. Invariant: two spellings of one value are equal, two values never are; `None` is no value."""

from __future__ import annotations

import unicodedata
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any

from services.verifier.families.edit import anls, distance

__all__ = ["anls", "day", "distance", "number", "text"]

ORDERS = ("dmy", "mdy")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LONG = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
NAMES = {name: number for names in (MONTHS, LONG) for number, name in enumerate(names, 1)}
MAX_TEXT = 4096
MAX_NUMBER = 128
MAX_EXPONENT = 400
THOUSAND = 3  # digits of a thousands group
PIECES = 3  # of a date
YEAR = 4  # digits
SHORT = 2  # digits of a day or month at most
CURRENCY = "$€£¥%"
APART = ("<super>", "<sub>", "<circle>", "<fraction>", "<square>")
"""Kinds of compatibility characters that mean something else than their parts in a row."""


def text(value: Any) -> str | None:
    """NFKC, case folded, runs of white space as one blank; None for what is no text or number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if len(str(value)) > MAX_TEXT:
        return None
    made = unicodedata.normalize("NFKC", str(value))
    return " ".join(made.casefold().split())


def _thousands(piece: str) -> bool:
    digits = "".join(char for char in piece if char not in CURRENCY)
    return not digits or (
        len(digits) >= THOUSAND
        and digits[:THOUSAND].isdigit()
        and digits[THOUSAND : THOUSAND + 1] in ("", ".", ",")
    )


def compatible(value: str) -> str | None:
    """NFKC of a text that says a figure; None if that would change what it says.

    Wide digits are digits in other letters, but 10² is no 102 and ② counts something: raised, lowered and circled ones differ.
    """
    if any(unicodedata.decomposition(char).startswith(APART) for char in value if not char.isascii()):
        return None
    return unicodedata.normalize("NFKC", value).strip()


def number(value: Any) -> Decimal | None:
    """The number `value` says: a JSON number, or text with currency or percent signs, blanks and separators of either custom.

    Of `.` and `,` the last is the decimal sign if both occur. A sign that occurs twice, or a single comma before exactly
    three digits, separates thousands.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text_value = str(value).strip()
    if len(text_value) > MAX_NUMBER:
        return None
    body = compatible(text_value)
    if body is None:
        return None
    groups = body.split()
    while len(groups) > 1 and all(char in CURRENCY + "+-" for char in groups[0]):
        groups.pop(0)
    if not all(_thousands(group) for group in groups[1:]):
        # `4 2` is two numbers; blanks may only part thousands, or a currency sign from its number.
        return None
    body = "".join(char for char in body if char not in CURRENCY and not char.isspace() and char not in "_'")
    dots, commas = body.count("."), body.count(",")
    if dots and commas:
        decimal = "." if body.rfind(".") > body.rfind(",") else ","
        body = body.replace("," if decimal == "." else ".", "").replace(decimal, ".")
    elif commas == 1 and len(body.rpartition(",")[2]) != THOUSAND:
        body = body.replace(",", ".")
    else:
        body = body.replace(",", "")
        if dots > 1:
            body = body.replace(".", "")
    if not body or any(char not in "0123456789.+-eE" for char in body):
        return None
    try:
        made = Decimal(body)
    except InvalidOperation:
        return None
    return made if made.is_finite() and abs(made.adjusted()) < MAX_EXPONENT else None


def day(value: Any, order: str) -> str | None:
    """The date as YYYY-MM-DD: ISO (`2024-05-14`, `2024/5/14`), `14 May 2024`, `May 14, 2024`, `14.05.2024` by `order`.

    A year needs four digits.
    """
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return None
    pieces = value.strip().replace(",", " ").replace(".", " ").replace("/", " ").replace("-", " ").split()
    if len(pieces) != PIECES:
        return None
    months = [NAMES.get(piece.casefold()) for piece in pieces]
    named = [index for index, month in enumerate(months) if month is not None]
    if len(named) > 1 or not all(
        piece.isascii() and piece.isdigit() for i, piece in enumerate(pieces) if i not in named
    ):
        return None
    rest = [piece for index, piece in enumerate(pieces) if index not in named]
    if named:
        year, other = (rest[0], rest[1:]) if len(rest[0]) == YEAR else (rest[-1], rest[:-1])
        month, day_of = months[named[0]], other[0]
    elif len(rest[0]) == YEAR:
        year, month, day_of = rest[0], int(rest[1]) if len(rest[1]) <= SHORT else 0, rest[2]
    else:
        first, second = (rest[1], rest[0]) if order == "dmy" else (rest[0], rest[1])
        year, month, day_of = rest[2], int(first) if len(first) <= SHORT else 0, second
    if len(year) != YEAR or not month or len(day_of) > SHORT:
        return None
    try:
        return date(int(year), month, int(day_of)).isoformat()
    except ValueError:
        return None
