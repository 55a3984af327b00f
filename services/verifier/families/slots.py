"""What a parameter may hold. Invariant: a value is accepted only if an alternative equals it, typed, part by part.

An alternative is plain JSON (a scalar or a list of scalars), or a table with one tag: {"value": any JSON}, {"items": [slot...]}
or {"fields": {name: slot}}. A slot is a list of alternatives, or {"any": [...], "optional": true}: then it may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from services.verifier import specs
from services.verifier.values import is_plain

TAGS = ("value", "items", "fields")
DROPPED = str.maketrans(dict.fromkeys(" ,./-_*^", "") | {"'": '"'})
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """Alternatives for one value."""

    any: tuple[Alternative, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """One acceptable value: plain data, a list of slots, or slots by key."""

    kind: Literal["value", "items", "fields"]
    value: Any


@dataclass(frozen=True, slots=True)
class Rules:
    """How values are compared."""

    loose: bool = False
    """Texts are equal without their case and ` ,./-_*^`, and with either quotation mark, as BFCL compares them."""
    tolerance: float = 0.0
    """Relative, between two numbers that are not both whole."""


def fixed(arguments: dict[str, Any]) -> dict[str, Slot]:
    """Slots that take exactly these arguments."""
    return {name: Slot((Alternative("value", value),)) for name, value in arguments.items()}


def slots(given: Any, where: str, depth: int = 0) -> dict[str, Slot]:
    """Name -> slot. Raises SpecError."""
    return {name: slot(each, f"{where}.{name}", depth) for name, each in specs.table(given, where).items()}


def slot(given: Any, where: str, depth: int = 0) -> Slot:
    """The slot that a spec describes. Raises SpecError."""
    if depth > MAX_DEPTH:
        raise specs.SpecError(f"{where} is nested deeper than {MAX_DEPTH}")
    optional = False
    if isinstance(given, dict):
        specs.keys(given, ("any", "optional"), where)
        optional = given.get("optional", False)
        if not isinstance(optional, bool):
            raise specs.SpecError(f"{where}.optional must be true or false")
        given = given.get("any")
    options = specs.items(given, where, least=1)
    return Slot(tuple(_alternative(each, f"{where}[{n}]", depth) for n, each in enumerate(options)), optional)


def _alternative(given: Any, where: str, depth: int) -> Alternative:
    if not isinstance(given, dict):
        if not is_plain(given):
            raise specs.SpecError(f"{where} is not plain JSON data")
        return Alternative("value", given)
    if len(given) != 1 or next(iter(given)) not in TAGS:
        raise specs.SpecError(f"{where} must be a scalar, a list, or a table with one of {', '.join(TAGS)}")
    if "items" in given:
        each = specs.items(given["items"], f"{where}.items")
        return Alternative(
            "items", [slot(item, f"{where}.items[{n}]", depth + 1) for n, item in enumerate(each)]
        )
    if "fields" in given:
        return Alternative("fields", slots(given["fields"], f"{where}.fields", depth + 1))
    if not is_plain(given["value"]):
        raise specs.SpecError(f"{where}.value is not plain JSON data")
    return Alternative("value", given["value"])


def example(wanted: dict[str, Slot]) -> dict[str, Any]:
    """The first alternatives, optional ones left out: arguments that are right."""
    return {name: _first(each.any[0]) for name, each in wanted.items() if not each.optional}


def _first(alternative: Alternative) -> Any:
    if alternative.kind == "items":
        return [_first(each.any[0]) for each in alternative.value]
    return example(alternative.value) if alternative.kind == "fields" else alternative.value


def accepts(wanted: Slot, got: Any, schema: Any, rules: Rules) -> bool:
    """Whether one of the alternatives is `got`; `schema` tells where an integer may stand for a number."""
    return any(_is(each, got, schema, rules) for each in wanted.any)


def _is(want: Alternative, got: Any, schema: Any, rules: Rules) -> bool:
    if want.kind == "value":
        return equal(want.value, got, schema, rules)
    if want.kind == "items":
        return (
            isinstance(got, list)
            and len(got) == len(want.value)
            and all(
                accepts(each, item, _item(schema, index), rules)
                for index, (each, item) in enumerate(zip(want.value, got, strict=True))
            )
        )
    if not isinstance(got, dict) or not got.keys() <= want.value.keys():
        return False
    return all(
        accepts(each, got[name], _property(schema, name), rules) if name in got else each.optional
        for name, each in want.value.items()
    )


def equal(want: Any, got: Any, schema: Any, rules: Rules) -> bool:
    """Typed equality of two JSON values; `1 != True`, and `1 == 1.0` only where the schema says `number`."""
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(
            equal(value, got[name], _property(schema, name), rules) for name, value in want.items()
        )
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(
            equal(value, item, _item(schema, index), rules)
            for index, (value, item) in enumerate(zip(want, got, strict=True))
        )
    if {type(want), type(got)} == {int, float} and "number" not in types(schema):
        return False
    if isinstance(want, bool) or isinstance(got, bool) or not isinstance(want, int | float):
        if rules.loose and isinstance(want, str) and isinstance(got, str):
            return standard(want) == standard(got)
        return type(want) is type(got) and bool(want == got)
    return isinstance(got, int | float) and _near(want, got, rules.tolerance)


def _near(want: float, got: float, tolerance: float) -> bool:
    if isinstance(want, int) and isinstance(got, int):
        return want == got
    try:
        return want == got or (tolerance > 0.0 and math.isclose(want, got, rel_tol=tolerance))
    except OverflowError:  # a whole number of 400 digits is near no double
        return False


def types(schema: Any) -> Iterable[str]:
    """Types that a schema names, by its own words or by those of its branches."""
    if not isinstance(schema, dict):
        return ()
    named = schema.get("type", ())
    found = [named] if isinstance(named, str) else list(named)
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(key, ()):
            found.extend(types(branch))
    return found


def _property(schema: Any, name: str) -> Any:
    if not isinstance(schema, dict):
        return None
    return schema.get("properties", {}).get(name, schema.get("additionalProperties"))


def _item(schema: Any, index: int) -> Any:
    if not isinstance(schema, dict):
        return None
    prefix = schema.get("prefixItems", ())
    return prefix[index] if index < len(prefix) else schema.get("items")


def standard(text: str) -> str:
    """`text` without its case, blanks and ,./-_*^, its single quotation marks doubled."""
    return text.translate(DROPPED).lower()
