"""Values between the tests and the candidate, as JSON with a tag for each type. Invariant: what arrives has Python's own exact types.

Scalars stand for themselves; the rest are lists that begin with a tag: l list, t tuple, s set, z frozenset, d dictionary (keys
and values in turn), b bytes (hex), f a float that is not finite, c complex (two floats), i a large integer (hex), r one of the
types in LIBRARY and what it is made of. Every other tag, a capital letter, is a matter of the two ends (stand.py, kept.py).
"""

# ruff: noqa: E501, PLR0124, PLR0911, D103 (one branch for each type)
import json
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Other = Callable[[Any], Any]
    """The tree of a value of another type, or, the other way, the value of a tree that has another tag."""

DEPTH = 100
LARGE_BITS = 8192
"""From here on an integer goes as hex: Python refuses to read much longer ones in decimal."""
INFINITE = {float("inf"), float("-inf")}
GROUPS: "dict[Any, str]" = {list: "l", tuple: "t", set: "s", frozenset: "z"}
MAKERS = {"l": list, "t": tuple, "s": set, "z": frozenset}
NUMBER, TEXT = (int,), (str,)
MAYBE = (int, type(None))


def zoned(value: "Any") -> "list[Any]":
    zone = value.tzinfo
    if zone is not None and type(zone) is not sys.modules["datetime"].timezone:
        raise LookupError("a time zone that is not a fixed offset")
    return [value.hour, value.minute, value.second, value.microsecond, zone]


def stamp(kind: "Any", *parts: "Any") -> "Any":
    if parts[-1] is not None and type(parts[-1]) is not sys.modules["datetime"].timezone:
        raise ValueError("no time zone")
    return kind(*parts)


def filled(kind: "Any", default: "Any", content: "Any") -> "Any":
    if type(content) is not dict:
        raise ValueError("no content")
    return kind(default if type(default) is type else None, content)


# (module, type): what a value is made of, the types of these parts, and the value of them if it is not the type of them.
LIBRARY: "dict[tuple[str, str], tuple[Any, Any, Any]]" = {
    ("builtins", "bytearray"): (lambda v: [bytes(v)], (bytes,), None),
    ("builtins", "range"): (lambda v: [v.start, v.stop, v.step], NUMBER, None),
    ("builtins", "slice"): (lambda v: [v.start, v.stop, v.step], MAYBE, None),
    ("decimal", "Decimal"): (lambda v: [str(v)], TEXT, None),
    ("fractions", "Fraction"): (lambda v: [v.numerator, v.denominator], NUMBER, None),
    ("datetime", "timedelta"): (lambda v: [v.days, v.seconds, v.microseconds], NUMBER, None),
    ("datetime", "timezone"): (lambda v: [v.utcoffset(None)], None, None),
    ("datetime", "date"): (lambda v: [v.year, v.month, v.day], NUMBER, None),
    ("datetime", "time"): (zoned, None, stamp),
    ("datetime", "datetime"): (lambda v: [v.year, v.month, v.day, *zoned(v)], None, stamp),
    ("uuid", "UUID"): (lambda v: [v.hex], TEXT, None),
    ("pathlib", "PosixPath"): (lambda v: [str(v)], TEXT, None),
    ("pathlib", "PurePosixPath"): (lambda v: [str(v)], TEXT, None),
    ("collections", "Counter"): (lambda v: [dict(v)], (dict,), None),
    ("collections", "OrderedDict"): (lambda v: [dict(v)], (dict,), None),
    ("collections", "defaultdict"): (lambda v: [v.default_factory, dict(v)], None, filled),
    ("collections", "deque"): (lambda v: [list(v), v.maxlen], (list, *MAYBE), None),
}


def split(value: "Any") -> "tuple[tuple[str, str], list[Any]] | None":
    """The name and the parts of a value whose type is exactly one of LIBRARY; None for any other."""
    kind = type(value)
    for name, (parts, _, _) in LIBRARY.items():
        module = sys.modules.get(name[0])
        if module is not None and vars(module).get(name[1]) is kind:
            return name, parts(value)
    return None


def joined(name: "Any", parts: "list[Any]") -> "Any":
    """The value of what `split` gave. Raises what no such value can be made of."""
    _, kinds, make = LIBRARY[tuple(name)]
    if kinds is not None and not all(type(part) in kinds for part in parts):
        raise ValueError("parts of other types")
    __import__(name[0])
    kind = vars(sys.modules[name[0]])[name[1]]
    return make(kind, *parts) if make else kind(*parts)


def tagged(value: "Any", other: "Other", depth: int = DEPTH) -> "Any":
    """The tree of `value`; that of another type is what `other` gives. Raises what that does, ValueError if deep."""
    if depth == 0:
        raise ValueError("too deep")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if value.bit_length() < LARGE_BITS else ["i", f"{value:x}"]
    if kind is float:
        return ["f", repr(value)] if value != value or value in INFINITE else value
    if kind in GROUPS:
        return [GROUPS[kind], *[tagged(item, other, depth - 1) for item in value]]
    if kind is dict:
        pairs = ["d"]
        for key, item in value.items():
            pairs += [tagged(key, other, depth - 1), tagged(item, other, depth - 1)]
        return pairs
    if kind is bytes:
        return ["b", value.hex()]
    if kind is complex:
        return ["c", tagged(value.real, other), tagged(value.imag, other)]
    try:
        found = split(value)
    except LookupError:
        found = None
    if found is None:
        return other(value)
    return ["r", list(found[0]), *[tagged(part, other, depth - 1) for part in found[1]]]


def plain(tree: "Any", other: "Other", depth: int = DEPTH) -> "Any":
    """The value of a tree. Raises ValueError, TypeError, LookupError, ArithmeticError or what `other` raises."""
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
    if tag == "i":
        return int(items[0], 16)
    if tag == "r":
        return joined(items[0], [plain(item, other, depth - 1) for item in items[1:]])
    if tag not in ("c", "d") and tag not in MAKERS:
        return other(tree)
    values = [plain(item, other, depth - 1) for item in items]
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
