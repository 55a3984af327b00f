"""Values between the tests and the candidate, as JSON with a tag for each type. Invariant: what arrives is exact built-in types.

Scalars stand for themselves; the rest are lists that begin with a tag: l list, t tuple, s set, z frozenset, d dictionary (keys
and values in turn), b bytes (hex), f a float that is not finite, c complex (two floats), o a handle to an object that stays.
"""

# ruff: noqa: PLR0124 (one branch for each type)
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEPTH = 32
INFINITE = {float("inf"), float("-inf")}
GROUPS: "dict[Any, str]" = {list: "l", tuple: "t", set: "s", frozenset: "z"}
MAKERS = {"l": list, "t": tuple, "s": set, "z": frozenset}


def tagged(value: "Any", handle: "Callable[[Any], Any]", depth: int = DEPTH) -> "Any":
    """The tree of `value`; what is of no exact built-in type goes through `handle`. Raises what that does, ValueError if deep."""
    if depth == 0:
        raise ValueError("too deep")
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return ["f", repr(value)] if value != value or value in INFINITE else value
    if kind in GROUPS:
        return [GROUPS[kind], *[tagged(item, handle, depth - 1) for item in value]]
    if kind is dict:
        pairs = ["d"]
        for key, item in value.items():
            pairs += [tagged(key, handle, depth - 1), tagged(item, handle, depth - 1)]
        return pairs
    if kind is bytes:
        return ["b", value.hex()]
    if kind is complex:
        return ["c", tagged(value.real, handle), tagged(value.imag, handle)]
    return ["o", handle(value)]


def plain(tree: "Any", held: "Callable[[Any], Any]", depth: int = DEPTH) -> "Any":
    """The value of a tree, handles by `held`. Raises ValueError, TypeError, KeyError, IndexError or what `held` raises."""
    if type(tree) is not list:
        if tree is None or type(tree) in (bool, int, float, str):
            return tree
        raise ValueError("an object")
    if depth == 0:
        raise ValueError("too deep")
    tag, items = tree[0], tree[1:]
    if tag == "f":
        return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[items[0]]
    if tag == "b":
        return bytes.fromhex(items[0])
    if tag == "o":
        return held(items[0])
    values = [plain(item, held, depth - 1) for item in items]
    if tag == "c":
        return complex(*values)
    if tag == "d":
        return dict(zip(values[::2], values[1::2], strict=True)) if len(values) % 2 == 0 else {}[tag]
    return MAKERS[tag](values)


def packed(tree: "Any") -> bytes:
    """One message: length (4 bytes) and JSON."""
    text = json.dumps(tree, allow_nan=False, separators=(",", ":")).encode("ascii")
    return len(text).to_bytes(4, "big") + text


def refused(token: str) -> "Any":
    """Raises ValueError: NaN and the infinities have a tag."""
    raise ValueError(token)


def parsed(text: bytes) -> "Any":
    """The tree of a message's text. Raises ValueError or RecursionError."""
    return json.loads(text, parse_constant=refused)
