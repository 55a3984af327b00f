"""Our rules on top of the library's JSON Schema 2020-12. Invariant: no rule runs away or fails on any JSON value of an answer."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, time
from fractions import Fraction
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from services.verifier.families.linear import compiled

MAIL_PARTS = 2
HOST, LABEL = 253, 63
"""Longest host name and label, RFC 1035."""


def _mail(text: str) -> bool:
    parts = text.split("@")
    return len(parts) == MAIL_PARTS and all(parts) and not any(char.isspace() for char in text)


def _link(text: str) -> bool:
    found = urlsplit(text)
    return bool(found.scheme and (found.netloc or found.path)) and not any(char.isspace() for char in text)


def _host(text: str) -> bool:
    labels = text.split(".")
    return len(text) <= HOST and all(
        1 <= len(label) <= LABEL
        and label.isascii()
        and label.replace("-", "").isalnum()
        and label.strip("-") == label
        for label in labels
    )


def _moment(text: str) -> bool:
    return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None


FORMATS: dict[str, Callable[[str], Any]] = {
    "date": lambda text: date.fromisoformat(text).isoformat() == text,
    "time": lambda text: ":" in text and time.fromisoformat(text) is not None,
    "date-time": _moment,
    "email": _mail,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": lambda text: str(uuid.UUID(text)) == text.lower(),
    "uri": _link,
    "hostname": _host,
}
"""Format -> whether a text is of it: a false value or a ValueError says no."""


def is_format(name: str, text: str) -> bool:
    """Whether `text` has the format called `name`."""
    try:
        return bool(FORMATS[name](text))
    except ValueError:
        return False


def distinct(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`uniqueItems` in linear time; the library compares every pair of what it cannot sort."""
    if wanted and isinstance(instance, list) and len({canonical(each) for each in instance}) != len(instance):
        yield _error("has equal entries")


def multiple(_validator: Any, step: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`multipleOf` by exact fractions of the decimal spelling: 0.3 is a multiple of 0.1, and 400 digits overflow nothing."""
    number = isinstance(instance, int | float) and not isinstance(instance, bool)
    if number and Fraction(str(instance)) % Fraction(str(step)):
        yield _error(f"is no multiple of {step}")


def matches(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`pattern` on the linear engine."""
    if isinstance(instance, str) and not compiled(pattern).search(instance):
        yield _error(f"does not match {pattern!r}")


def by_name(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """`patternProperties` on the linear engine."""
    if isinstance(instance, dict):
        for pattern, schema in patterns.items():
            for name in filter(compiled(pattern).search, instance):
                yield from validator.descend(instance[name], schema, path=name, schema_path=pattern)


def closed(validator: Any, extra: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """`additionalProperties`; the library's own rule joins the patterns and runs them on the backtracking engine."""
    if not isinstance(instance, dict):
        return
    engines = [compiled(pattern) for pattern in schema.get("patternProperties", {})]
    for name, value in instance.items():
        if name in schema.get("properties", {}) or any(engine.search(name) for engine in engines):
            continue
        if extra is False:
            yield _error(f"unexpected key {name!r}", name)
        elif isinstance(extra, dict):
            yield from validator.descend(value, extra, path=name)


def _error(message: str, *path: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message, path=path)


RULES = {
    "uniqueItems": distinct,
    "multipleOf": multiple,
    "pattern": matches,
    "patternProperties": by_name,
    "additionalProperties": closed,
}


@lru_cache(maxsize=1)
def parts() -> tuple[Any, Any]:
    """(validator class, format checker)."""
    from jsonschema import (
        Draft202012Validator,
        FormatChecker,
        validators,
    )  # heavy: not needed by the other families

    checker = FormatChecker(formats=())
    for name in FORMATS:
        checker.checks(name)(_checked(name))
    return validators.extend(Draft202012Validator, RULES), checker


def _checked(name: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, str) or is_format(name, value)


def canonical(value: Any) -> str:
    """Text that two JSON values share exactly if JSON Schema calls them equal: 1 and 1.0 are, true and 1 are not."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
