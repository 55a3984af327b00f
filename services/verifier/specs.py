"""Reading a task's spec. Invariant: a spec a family accepts is complete; what is wrong is named by its path in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


class SpecError(ValueError):
    """The task or its card is at fault, never the answer: the verdict is `infra` and the message names the place."""


def table(value: Any, where: str) -> dict[str, Any]:
    """`value` as a table. Raises SpecError."""
    if not isinstance(value, dict):
        raise SpecError(f"{where} must be a table, got {type(value).__name__}")
    return value


def items(value: Any, where: str, *, least: int = 0) -> list[Any]:
    """`value` as a list of at least `least` entries. Raises SpecError."""
    if not isinstance(value, list | tuple):
        raise SpecError(f"{where} must be a list, got {type(value).__name__}")
    if len(value) < least:
        raise SpecError(
            f"{where} is empty: give at least {least}"
            if not value
            else f"{where} needs at least {least} entries"
        )
    return list(value)


def text(value: Any, where: str, *, empty: bool = False) -> str:
    """`value` as text. Raises SpecError."""
    if not isinstance(value, str):
        raise SpecError(f"{where} must be text, got {type(value).__name__}")
    if not value and not empty:
        raise SpecError(f"{where} is empty")
    return value


def texts(value: Any, where: str, *, least: int = 0) -> list[str]:
    """`value` as a list of non-empty texts. Raises SpecError."""
    return [text(item, f"{where}[{index}]") for index, item in enumerate(items(value, where, least=least))]


def whole(value: Any, where: str, *, least: int = 0) -> int:
    """`value` as a whole number of at least `least`. Raises SpecError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SpecError(f"{where} must be a whole number of at least {least}, got {value!r}")
    return value


def number(value: Any, where: str, *, low: float, high: float) -> float:
    """`value` as a finite number in [low, high]. Raises SpecError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        raise SpecError(f"{where} must be a number from {low:g} to {high:g}, got {value!r}")
    return float(value)


def choice(value: Any, options: Sequence[str], where: str) -> str:
    """`value` as one of `options`. Raises SpecError."""
    if value not in options:
        raise SpecError(f"{where} is {value!r}: choose one of {', '.join(options)}")
    return str(value)


def keys(value: dict[str, Any], allowed: Sequence[str], where: str) -> None:
    """Raises SpecError for a key that is not in `allowed`."""
    unknown = sorted(set(value) - set(allowed))
    if unknown:
        raise SpecError(f"{where} has an unknown key {unknown[0]!r}; known: {', '.join(allowed)}")
