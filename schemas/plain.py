"""What may stand in fields that are open to their writer. Invariant: every encoding carries it, and carries it back unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect

LARGEST = (1 << 64) - 1
SMALLEST = -(1 << 63)
DEEPEST = 64


def fault(value: Any, where: str, depth: int = DEEPEST) -> str:
    """Why `value`, which stands at `where`, is no plain data; "" if it is.

    Plain are null, bool, integers of 64 bits, finite numbers, text, lists, and objects with text as keys.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return ""
    if kind is int:
        fits = SMALLEST <= value <= LARGEST
        return "" if fits else f"{where} is an integer of more than 64 bits; write it as text"
    if kind is float:
        fits = math.isfinite(value)
        return (
            "" if fits else f"{where} is {value}, which JSON does not have; leave it out or write it as text"
        )
    if kind is not list and kind is not dict:
        return f"{where} is of type {kind.__name__}, which JSON does not have"
    if depth == 0:
        return f"{where} lies more than {DEEPEST} levels deep"
    if kind is list:
        found = (fault(item, f"{where}[{number}]", depth - 1) for number, item in enumerate(value))
        return next(filter(None, found), "")
    return next(filter(None, (_pair(key, item, where, depth) for key, item in value.items())), "")


def _pair(key: Any, item: Any, where: str, depth: int) -> str:
    if type(key) is not str:
        return f"{where} has a key of type {type(key).__name__}; keys are text"
    return fault(item, f"{where}.{key if key.isidentifier() else repr(key)}"[:200], depth - 1)


COUNTABLE = 1 << 53
"""Whole numbers up to here are exact in every language's JSON; sums and products of a few still fit in 64 bits."""


@cache
def whole_fields(cls: type[msgspec.Struct]) -> tuple[tuple[str, ...], ...]:
    """Paths of the whole numbers of an event: names of fields, `*` for each item of a list and each value of a map."""
    found: list[tuple[str, ...]] = []

    def look(kind: inspect.Type, path: tuple[str, ...]) -> None:
        if isinstance(kind, inspect.IntType):
            if kind.le is None or kind.ge is None:
                found.append(path)
        elif isinstance(kind, inspect.StructType):
            for field in kind.fields:
                look(field.type, (*path, field.name))
        elif isinstance(kind, inspect.UnionType):
            for each in kind.types:
                look(each, path)
        elif isinstance(kind, inspect.VarTupleType | inspect.ListType):
            look(kind.item_type, (*path, "*"))
        elif isinstance(kind, inspect.DictType):
            look(kind.value_type, (*path, "*"))

    look(inspect.type_info(cls), ())
    return tuple(dict.fromkeys(found))


def uncountable(event: msgspec.Struct) -> str:
    """Which whole number of an event is beyond COUNTABLE; "" if none is."""
    direct, deeper = _reading(type(event))
    for value in direct(event):
        if value.__class__ is int and not -COUNTABLE <= value <= COUNTABLE:
            return _named(event)
    return _named(event) if deeper else ""


@cache
def _reading(cls: type[msgspec.Struct]) -> tuple[Callable[[Any], tuple[Any, ...]], bool]:
    """What reads the whole numbers of an event itself, all in one, and whether there are others in what it is made of.

    Every record of the log comes by here, and looking path by path would cost as much as decoding it.
    """
    paths = whole_fields(cls)
    names = [path[0] for path in paths if len(path) == 1]
    deeper = len(names) < len(paths)
    if not names:
        return (lambda _: ()), deeper
    get = attrgetter(*names)
    return (get if len(names) > 1 else lambda event: (get(event),)), deeper


def _named(event: msgspec.Struct) -> str:
    for path in whole_fields(type(event)):
        values: list[Any] = [event]
        for name in path:
            if name == "*":
                values = [
                    item
                    for value in values
                    if value
                    for item in (value.values() if isinstance(value, dict) else value)
                ]
            else:
                values = [getattr(value, name, None) for value in values]
        whole = [value for value in values if type(value) is int]
        if whole and not (min(whole) >= -COUNTABLE and max(whole) <= COUNTABLE):
            beyond = max(whole, key=abs)
            return f"{'.'.join(path)} is {_shown(beyond)}; whole numbers go to 2^53"
    return ""


FLOATING = 1000
"""Bits of a whole number that a float holds for sure."""


def _shown(value: int) -> str:
    """A large number in a few characters. JSON has numbers that no float holds, and whose digits take long to print."""
    bits = value.bit_length()
    return f"{value:.3e}" if bits < FLOATING else f"an integer of {bits} bits"
