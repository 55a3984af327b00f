"""Values from outside the trust boundary. Invariant: parsing never executes, never runs away, and equality is typed."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_BYTES = 65_536
MAX_DEPTH = 32
MAX_DIGITS = 400
EXACT = frozenset({type(None), bool, int, str})


class ValueFormatError(ValueError):
    """Text that is not one strict JSON value within the limits; the message is one line."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueFormatError("a JSON object names a key twice")
    return made


def _refuse(token: str) -> Any:
    raise ValueFormatError(f"{token} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueFormatError(f"a number has {len(digits)} digits, {MAX_DIGITS} are allowed")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits[:MAX_DIGITS]) if len(digits) <= MAX_DIGITS else math.inf
    if not math.isfinite(value):
        raise ValueFormatError("a number is too large for a double")
    return value


_decoder = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_refuse, parse_int=_integer, parse_float=_real, strict=True
)


def depth(text: str) -> int:
    """Deepest nesting of brackets and braces outside double-quoted strings; linear in the text."""
    deepest = level = 0
    quoted = escaped = False
    for char in text:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{(":
            level += 1
            deepest = max(deepest, level)
        elif char in "]})":
            level -= 1
    return deepest


def _shallow(text: str, max_depth: int) -> str:
    if depth(text) > max_depth:
        raise ValueFormatError(f"nested deeper than {max_depth}")
    return text


def parse_json(raw: bytes | str, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """The one JSON value in `raw`: no duplicate key, no NaN or infinity, no lone surrogate, bounded size and depth.

    Raises:
        ValueFormatError: anything else.
    """
    if len(raw) > max_bytes:
        raise ValueFormatError(f"{len(raw)} bytes of JSON, {max_bytes} are allowed")
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        value = _decoder.decode(_shallow(text, max_depth))
        if "\\u" in text:  # how a lone surrogate can come
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueFormatError:
        raise
    except json.JSONDecodeError as error:
        raise ValueFormatError(f"not JSON: {error.msg} at character {error.pos}") from error
    except UnicodeError as error:
        raise ValueFormatError("text that is not valid UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ValueFormatError(f"not JSON: {type(error).__name__}") from error
    return value


def _alike(a: list[Any], b: list[Any]) -> bool:
    """Whether these are equal lists of integers, texts and the like: what most are, and found many times faster."""
    return EXACT.issuperset(map(type, a)) and a == b and list(map(type, a)) == list(map(type, b))


def same(left: Any, right: Any, *, tolerance: float = 0.0, widen: bool = False) -> bool:
    """Typed equality of two JSON values: `1 != True`, `1 != 1.0`, NaN equals nothing; dictionaries ignore order.

    `tolerance` is relative and absolute and holds between two floats only; `widen` lets an integer stand for a float.
    """
    stack = [(left, right)]
    while stack:
        a, b = stack.pop()
        if widen and {type(a), type(b)} == {int, float}:
            if a != b:
                return False
            continue
        if type(a) is not type(b):
            return False
        if isinstance(a, float):
            if not (a == b or math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)) or not math.isfinite(
                a
            ):
                return False
        elif isinstance(a, dict):
            if a.keys() != b.keys():
                return False
            stack.extend((a[key], b[key]) for key in a)
        elif isinstance(a, list):
            if len(a) != len(b):
                return False
            stack.extend(() if _alike(a, b) else zip(a, b, strict=True))
        elif a != b:
            return False
    return True


def is_plain(value: Any) -> bool:
    """Whether `value` is made of JSON types only, numbers finite, keys text."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            stack.extend(item.values())
        elif isinstance(item, list):
            if not EXACT.issuperset(map(type, item)):
                stack.extend(item)
        elif isinstance(item, float):
            if not math.isfinite(item):
                return False
        elif not (item is None or isinstance(item, bool | int | str)):
            return False
    return True


def shown(value: Any, limit: int = 60) -> str:
    """`value` as short JSON for evidence."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True)
    return text if len(text) <= limit else text[: limit - 3] + "..."
