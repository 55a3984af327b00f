"""Document fields with a type and its options. Invariant: a value is right for its type's rule only; null is right for null only.

A field is `{type, want}` with options: any `also` (other right values); text `partial`; number and money `tolerance`, `relative`,
`locale`; date `order`, `forms`; id `case`; enum `values`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from services.verifier import specs
from services.verifier.families import fields
from services.verifier.families.edit import Work, anls

TYPES = ("text", "number", "date", "enum", "id", "boolean", "money")
OPTIONS = {
    "text": ("partial",),
    "number": ("tolerance", "relative", "locale"),
    "money": ("tolerance", "relative", "locale"),
    "date": ("order", "forms"),
    "id": ("case",),
}
LOCALES = ("auto", "point", "comma")
"""How a text shows numbers: by its own marks, 1,234.5, or 1.234,5. A JSON number always has a point."""
SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "₩": "KRW", "CHF": "CHF"}
TRUE, FALSE = ("true", "yes", "y", "1", "on"), ("false", "no", "n", "0", "off")
LARGEST = 1e12
MAX_ALSO = 128
DAYS = "mon|tue|wed|thu|fri|sat|sun"
WEEKDAY = re.compile(rf"^(?:{DAYS})[a-z]{{0,6}}\.?,?\s+", re.IGNORECASE)
ORDINAL = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b(?:\s+of\b)?", re.IGNORECASE)
COMPACT = re.compile(r"^(\d{4})(\d{2})(\d{2})$", re.ASCII)
CLOCK = re.compile(
    r"^(\d{4}-\d{2}-\d{2})[Tt ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?$", re.ASCII
)
AMOUNT = re.compile(r"^([^\d+\-.,]{0,8})([+\-]?[\d.,' _]{1,64})([^\d]{0,8})$")


@dataclass(frozen=True, slots=True)
class Field:
    """One wanted field, its options resolved against the card's settings."""

    kind: str
    want: Any
    """Normal form, or None where null is wanted."""
    partial: bool = False
    order: str = "dmy"
    wide: bool = False
    locale: str = "auto"
    case: bool = False
    tolerance: Decimal = Decimal(0)
    relative: Decimal = Decimal(0)
    also: tuple[Any, ...] = ()
    """Normal forms of other values that are as right."""

    def normal(self, value: Any) -> Any:
        """Normal form of `value` as this type; None if it is no such value."""
        match self.kind:
            case "number":
                return number(value, self.locale)
            case "money":
                return money(value, self.locale)
            case "date":
                return day(value, self.order, wide=self.wide)
            case "id":
                return identity(value, case=self.case)
            case "boolean":
                return boolean(value)
        return fields.text(value)

    def closeness(self, got: Any, work: Work | None = None) -> float:
        """How right a value as written is, in [0, 1]. Raises ValueFormatError if `work` runs out."""
        if self.want is None or got is None:
            return float(self.want is None and got is None)
        return self.compare(self.normal(got), work)

    def compare(self, made: Any, work: Work | None = None) -> float:
        """As `closeness`, for a normal form; the wanted value is not null."""
        if made is None:
            return 0.0
        return max(self._like(made, want, work) for want in (self.want, *self.also))

    def _like(self, made: Any, want: Any, work: Work | None) -> float:
        if self.kind == "text" and self.partial:
            return anls(made, want, work)
        if self.kind == "number":
            return float(self._near(made, want))
        if self.kind == "money":
            return float(made[1] == want[1] and self._near(made[0], want[0]))
        return float(made == want)

    def _near(self, made: Decimal, want: Decimal) -> bool:
        if made == want or not (self.tolerance or self.relative):
            return made == want
        return abs(made - want) <= max(self.tolerance, self.relative * abs(want))


def read(field: dict[str, Any], settings: dict[str, Any]) -> Field:
    """The field of a spec that `check` has accepted."""
    kind, given = field["type"], field.get
    order, wide = given("order", settings.get("date_order", "dmy")), given("forms") == "wide"
    case, want = given("case") is True, field["want"]
    # What is wanted stands in the spec, where a number has a point in any locale.
    plain = Field(kind=kind, want=None, order=order, wide=wide, case=case)
    return Field(
        kind=kind,
        want=None if want is None else plain.normal(want),
        partial=bool(given("partial", settings.get("partial", False))),
        order=order,
        wide=wide,
        locale=given("locale", "auto"),
        case=case,
        tolerance=Decimal(str(given("tolerance", 0))),
        relative=Decimal(str(given("relative", 0))),
        also=tuple(plain.normal(each) for each in given("also", ())),
    )


def check(field: Any, where: str, settings: dict[str, Any]) -> None:
    """Raises SpecError unless `field` is complete, its options fit its type and its wanted value is of that type."""
    kind = specs.choice(specs.table(field, where).get("type"), TYPES, f"{where}.type")
    specs.keys(field, ("type", "want", "values", "also", *OPTIONS.get(kind, ())), where)
    if "want" not in field:
        raise specs.SpecError(f"{where}.want is missing")
    for name in ("partial", "case"):
        if not isinstance(field.get(name, False), bool):
            raise specs.SpecError(f"{where}.{name} must be true or false")
    specs.choice(field.get("order", "dmy"), fields.ORDERS, f"{where}.order")
    specs.choice(field.get("forms", "plain"), ("plain", "wide"), f"{where}.forms")
    specs.choice(field.get("locale", "auto"), LOCALES, f"{where}.locale")
    for name in ("tolerance", "relative"):
        specs.number(field.get(name, 0), f"{where}.{name}", low=0.0, high=LARGEST)
    want = field["want"]
    if want is not None and read(field, settings).want is None:
        raise specs.SpecError(f"{where}.want {want!r} is no {kind}")
    also = specs.items(field.get("also", []), f"{where}.also")
    if len(also) > MAX_ALSO or (also and want is None):
        raise specs.SpecError(
            f"{where}.also has {len(also)} values beside {want!r}: {MAX_ALSO} beside a value are allowed"
        )
    if None in read(field, settings).also:
        raise specs.SpecError(f"{where}.also holds what is no {kind}")
    values = specs.texts(field["values"], f"{where}.values", least=1) if "values" in field else None
    if kind == "enum" and want is not None and values is not None and str(want) not in values:
        raise specs.SpecError(f"{where}.want {want!r} is not among its values")


@cache
def _shape(locale: str) -> re.Pattern[str]:
    thousands, decimal = (",", r"\.") if locale == "point" else (r"\.", ",")
    whole = rf"(?:\d{{1,3}}(?:{thousands}\d{{3}})+|\d+)"
    return re.compile(rf"^[+-]?{whole}(?:{decimal}\d+)?(?:[eE][+-]?\d{{1,4}})?$", re.ASCII)


def number(value: Any, locale: str = "auto") -> Decimal | None:
    """`fields.number`, or its strict reading in one locale: thousands only before groups of three digits."""
    if locale == "auto" or not isinstance(value, str):
        return fields.number(value)
    if len(value) > fields.MAX_NUMBER:
        return None
    body = (fields.compatible(value) or "").strip(fields.CURRENCY).strip()
    if not _shape(locale).match(body):
        return None
    thousands, decimal = (",", ".") if locale == "point" else (".", ",")
    return fields.number(body.replace(thousands, "").replace(decimal, "."))


def money(value: Any, locale: str = "auto") -> tuple[Decimal, str] | None:
    """(amount, three-letter currency) of `12.50 EUR`, `€12,50`, or {"amount": 12.5, "currency": "EUR"}; both must be said."""
    if isinstance(value, dict):
        if value.keys() != {"amount", "currency"} or not isinstance(value["currency"], str):
            return None
        amount, said = number(value["amount"], locale), _currency(value["currency"])
        return None if amount is None or said is None else (amount, said)
    if not isinstance(value, str) or len(value) > fields.MAX_NUMBER:
        return None
    found = AMOUNT.match(fields.compatible(value) or "")
    if found is None:
        return None
    before, body, after = (piece.strip() for piece in found.groups())
    if bool(before) == bool(after):
        return None  # no currency, or two
    amount, said = number(body, locale), _currency(before or after)
    return None if amount is None or said is None else (amount, said)


def _currency(written: str) -> str | None:
    code = written.strip().upper()
    if code in SIGNS:
        return SIGNS[code]
    return code if len(code) == 3 and code.isascii() and code.isalpha() else None  # noqa: PLR2004 (ISO 4217)


def identity(value: Any, *, case: bool = False) -> str | None:
    """An identifier without white space, NFKC; its letters' case counts only with `case`; leading zeros always count."""
    if isinstance(value, bool) or not isinstance(value, str | int) or len(str(value)) > fields.MAX_TEXT:
        return None
    made = "".join(unicodedata.normalize("NFKC", str(value)).split())
    return made if case else made.casefold()


def boolean(value: Any) -> bool | None:
    """True or false: JSON's own, or one of a few words; None for all else, other numbers included."""
    if isinstance(value, bool):
        return value
    made = fields.text(value) if isinstance(value, str) else None
    return True if made in TRUE else False if made in FALSE else None


def day(value: Any, order: str, *, wide: bool = False) -> str | None:
    """`fields.day`; with `wide` also weekdays, ordinals (`Tue, 14th of May 2024`), `20240514`, and ISO times, dropped."""
    if not wide or not isinstance(value, str) or len(value) > fields.MAX_NUMBER:
        return fields.day(value, order)
    body = fields.compatible(value) or ""
    if found := CLOCK.match(body):
        body = found[1]
    elif found := COMPACT.match(body):
        body = "-".join(found.groups())
    else:
        body = ORDINAL.sub(r"\1", WEEKDAY.sub("", body))
    return fields.day(body, order)
