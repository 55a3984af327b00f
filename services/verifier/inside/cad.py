"""A tiny solid modeller's language. Invariant: it only records what was asked; nothing is computed from it here.

Every solid is centred at the origin. `+` unites, `-` cuts, `&` intersects. Lengths in units; angles do not occur.
"""

from __future__ import annotations

from typing import Any

NAMES = ("box", "cyl", "sphere", "move", "scale")
MAX_NODES = 200
SIZES = {"box": 3, "cyl": 2, "sphere": 1, "move": 3, "scale": 1}


class CadError(ValueError):
    """Not a solid of this language."""


class Solid:
    """One operation, its numbers and the solids it works on."""

    __slots__ = ("numbers", "op", "parts")

    def __init__(self, op: str, numbers: tuple[float, ...] = (), parts: tuple[Solid, ...] = ()) -> None:
        self.op, self.numbers, self.parts = op, numbers, parts

    def __add__(self, other: object) -> Solid:
        return _pair("+", self, other)

    def __sub__(self, other: object) -> Solid:
        return _pair("-", self, other)

    def __and__(self, other: object) -> Solid:
        return _pair("&", self, other)


def _pair(op: str, left: object, right: object) -> Solid:
    if type(left) is not Solid or type(right) is not Solid:
        raise TypeError(op + " needs two solids")
    return Solid(op, (), (left, right))


def _numbers(*values: object) -> tuple[float, ...]:
    made = []
    for value in values:
        if type(value) is not int and type(value) is not float:
            raise TypeError("a length must be a number")
        made.append(float(value))
    return tuple(made)


def box(x: object, y: object, z: object) -> Solid:
    """A box with these edge lengths."""
    return Solid("box", _numbers(x, y, z))


def cyl(r: object, h: object) -> Solid:
    """A cylinder of radius `r` along z, `h` high."""
    return Solid("cyl", _numbers(r, h))


def sphere(r: object) -> Solid:
    """A sphere of radius `r`."""
    return Solid("sphere", _numbers(r))


def move(s: object, x: object, y: object, z: object) -> Solid:
    """`s` shifted by (x, y, z)."""
    if type(s) is not Solid:
        raise TypeError("move needs a solid")
    return Solid("move", _numbers(x, y, z), (s,))


def scale(s: object, k: object) -> Solid:
    """`s` scaled by `k` about the origin."""
    if type(s) is not Solid:
        raise TypeError("scale needs a solid")
    return Solid("scale", _numbers(k), (s,))


def nodes(shape: object) -> list[list[Any]]:
    """`shape` as a table in order of need: `[op, [numbers], [rows of its parts]]`, the shape itself last.

    Raises:
        CadError: no solid, or more than MAX_NODES operations.
    """
    rows: list[list[Any]] = []
    known: dict[int, int] = {}
    stack: list[tuple[object, bool]] = [(shape, False)]
    while stack:
        item, ready = stack.pop()
        if type(item) is not Solid:
            raise CadError("the answer is not a solid")
        if id(item) in known:
            continue
        if ready:
            if len(rows) >= MAX_NODES:
                raise CadError("too many operations")
            known[id(item)] = len(rows)
            rows.append([item.op, list(item.numbers), [known[id(part)] for part in item.parts]])
        else:
            if len(stack) > 4 * MAX_NODES:
                raise CadError("too many operations")
            stack.append((item, True))
            stack.extend((part, False) for part in reversed(item.parts))
    return rows
