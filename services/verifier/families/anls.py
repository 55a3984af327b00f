"""ANLS* of nested answers. Invariant: the score is 1 exactly for an equal tree, and everything invented or left out lowers it.

Formula: Peer et al., "ANLS*", arXiv 2402.03848: sum of similarities over sum of lengths, recursively. Text leaves by ANLS
with threshold 0.5; objects by the union of their keys; lists by the best assignment, in any order; alternatives by the best.
A wanted value may be tagged: {"$any": [values]}, {"$field": a typed field} or {"$ordered": [a list in its order]}.
Stricter than the paper in one point: null, a missing key, "" and an empty list are four different things, each of length 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from services.verifier import specs
from services.verifier.families import fields, typed
from services.verifier.families.assign import best
from services.verifier.families.edit import FAIR, Work, anls, price
from services.verifier.values import same

ANY, FIELD, ORDERED = "$any", "$field", "$ordered"
TAGS = {ANY, FIELD, ORDERED}
MAX_NODES = 1024
MAX_CHARS = 16_384
MAX_ITEMS = 128
MAX_DEPTH = 24
TIE, GOLDEN = 1e-9, 0.6180339887498949
"""Weight of the tie-break, and of the lengths in it: no sum of similarities makes up for one of lengths exactly."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its length, which is the number of its leaves; an empty object or list has length 1."""

    kind: str
    """"dict", "list", "ordered", "any", "field", "text", "number", "boolean" or "null"."""
    size: int
    value: Any
    """Children of an inner node, a Field, or the JSON value of a leaf."""
    text: str | None = None
    """Normal form of a text or number as text."""


def tree(value: Any, settings: dict[str, Any] | None = None) -> Node:
    """The tree of JSON data. With `settings`, it is what is wanted, and tags have their meaning."""
    if isinstance(value, dict):
        if settings is not None and value.keys() == {ANY}:
            options = [tree(each, settings) for each in value[ANY]]
            return Node("any", max(option.size for option in options), options)
        if settings is not None and value.keys() == {FIELD}:
            return Node("field", 1, typed.read(value[FIELD], settings))
        if settings is not None and value.keys() == {ORDERED}:
            return replace(tree(value[ORDERED], settings), kind="ordered")
        made = {key: tree(each, settings) for key, each in value.items()}
        return Node("dict", max(1, sum(child.size for child in made.values())), made)
    if isinstance(value, list):
        items = [tree(each, settings) for each in value]
        return Node("list", max(1, sum(child.size for child in items)), items)
    if isinstance(value, bool) or value is None:
        return Node("null" if value is None else "boolean", 1, value)
    return Node("text" if isinstance(value, str) else "number", 1, value, fields.text(value))


def check(value: Any, where: str, settings: dict[str, Any]) -> None:
    """Raises SpecError unless `value` can be wanted: plain JSON, valid tags, and small enough to be compared in bounded time."""
    nodes, chars = 0, 0
    stack: list[tuple[Any, str, int]] = [(value, where, 0)]
    while stack:
        item, place, depth = stack.pop()
        nodes += 1
        chars += len(item) if isinstance(item, str) else 0
        if depth > MAX_DEPTH:
            raise specs.SpecError(f"{where} is nested deeper than {MAX_DEPTH}")
        stack.extend((child, name, depth + 1) for child, name in _children(item, place, settings))
    if nodes > MAX_NODES or chars > MAX_CHARS:
        raise specs.SpecError(
            f"{where} has {nodes} values and {chars} characters, {MAX_NODES} and {MAX_CHARS} are allowed"
        )
    if not _fair(json.dumps(value)):
        raise specs.SpecError(
            f"{where} takes too long to compare with an answer of its own size: use shorter lists"
        )


@lru_cache(maxsize=256)
def _fair(value: str) -> bool:
    """Whether a checked wanted value, as JSON, can be compared with its equal; settings do not bear on that."""
    wanted = tree(json.loads(value), {})
    return _price(wanted, wanted, Work(FAIR)) is not None


def _price(want: Node, got: Node, work: Work) -> Work | None:
    """`work` less what `similarity` spends at most on an answer like `got`; None if it is not enough."""
    options = want.value if want.kind == "any" else [want]
    answers = got.value if got.kind == "any" else [got]
    pairs = [(option, answer) for option in options for answer in answers]
    steps = len(pairs)
    inner: list[tuple[Node, Node]] = []
    for option, answer in pairs:
        if option.kind == answer.kind == "dict":
            inner += [
                (child, answer.value[key]) for key, child in option.value.items() if key in answer.value
            ]
        elif option.kind == answer.kind == "ordered":
            inner += zip(option.value, answer.value, strict=False)
        elif option.kind == answer.kind == "list":
            steps += len(option.value) * len(answer.value)
            inner += [(child, other) for child in option.value for other in answer.value]
        elif option.kind == answer.kind == "text":
            steps += price(len(option.text or ""), len(answer.text or ""))
        elif option.kind == answer.kind == "any":
            inner.append((option, answer))
    if work.left < steps:
        return None
    work.spend(steps)
    return work if all(_price(child, other, work) is not None for child, other in inner) else None


def _children(item: Any, place: str, settings: dict[str, Any]) -> list[tuple[Any, str]]:
    """What stands in `item`, each with its place, once `item` itself is found in order. Raises SpecError."""
    if isinstance(item, dict):
        tag = next((tag for tag in (FIELD, ANY, ORDERED) if tag in item), "")
        if tag and len(item) != 1:
            raise specs.SpecError(f"{place} has other keys beside its tag {tag}")
        if tag == FIELD:
            typed.check(item[FIELD], f"{place}.{FIELD}", settings)
            return []
        if tag == ORDERED:
            return [(specs.items(item[tag], f"{place}.{tag}"), f"{place}.{tag}")]
        if tag == ANY:
            options = specs.items(item[ANY], f"{place}.{ANY}", least=1)
            return [(option, f"{place}.{ANY}[{index}]") for index, option in enumerate(options)]
        return [
            (child, f"{place}.{specs.text(key, f'a key of {place}', empty=True)}")
            for key, child in item.items()
        ]
    if isinstance(item, list):
        if len(item) > MAX_ITEMS:
            raise specs.SpecError(f"{place} has {len(item)} entries, {MAX_ITEMS} are allowed")
        return [(child, f"{place}[{index}]") for index, child in enumerate(item)]
    if isinstance(item, bool) or item is None:
        return []
    if isinstance(item, str) and fields.text(item) is None:
        raise specs.SpecError(f"{place} is a text of more than {fields.MAX_TEXT} characters")
    if not isinstance(item, str) and fields.number(item) is None:
        raise specs.SpecError(f"{place} is no JSON value of moderate size: {item!r}")
    return []


def similarity(want: Node, got: Node, work: Work) -> tuple[float, int]:
    """(sum of similarities, sum of lengths). Raises ValueFormatError if `work` runs out."""
    work.spend(1)
    if want.kind == "any":
        tried = [similarity(option, got, work) for option in want.value]
        return max(tried, key=lambda pair: (pair[0] / pair[1], pair[0]))
    if want.kind == "field":
        right = want.value.closeness(_plain(got), work)
        return right, 1 if right else got.size  # an amount may be an object, and is one value all the same
    if want.kind == "dict" and got.kind == "dict" and want.value and got.value:
        return _objects(want, got, work)
    if want.kind == "list" and got.kind == "list" and want.value and got.value:
        return _lists(want, got, work)
    if want.kind == "ordered" and got.kind == "list" and (want.value or not got.value):
        return _ordered(want, got, work)
    return _leaf(want, got, work), max(want.size, got.size)


def _objects(want: Node, got: Node, work: Work) -> tuple[float, int]:
    total, length = 0.0, 0
    for key, child in want.value.items():
        if key in got.value:
            part, size = similarity(child, got.value[key], work)
            total, length = total + part, length + size
        else:
            length += child.size
    return total, length + sum(child.size for key, child in got.value.items() if key not in want.value)


def _lists(want: Node, got: Node, work: Work) -> tuple[float, int]:
    # Charged at once: the solver's own work grows with the table.
    work.spend(len(want.value) * len(got.value))
    table = [[similarity(child, other, work) for other in got.value] for child in want.value]
    chosen = best(
        [
            [
                _worth(part, size, child.size + other.size)
                for (part, size), other in zip(row, got.value, strict=True)
            ]
            for child, row in zip(want.value, table, strict=True)
        ]
    )
    rows, columns = {row for row, _ in chosen}, {column for _, column in chosen}
    total = sum(table[row][column][0] for row, column in chosen)
    length = sum(table[row][column][1] for row, column in chosen)
    length += sum(child.size for index, child in enumerate(want.value) if index not in rows)
    length += sum(child.size for index, child in enumerate(got.value) if index not in columns)
    return total, length


def _worth(part: float, size: int, apart: int) -> float:
    """What pairing two items is worth: their similarity and, among assignments that are equal in that, what decides the score.

    Otherwise the order of a list would decide between them. `apart`: their lengths, each counted by itself.
    """
    return part / size + TIE * (part + GOLDEN * (apart - size))


def _ordered(want: Node, got: Node, work: Work) -> tuple[float, int]:
    """Place by place; what is missing at the end or too much there counts as in an unordered list."""
    if not want.value:
        return 1.0, 1
    pairs = [similarity(child, other, work) for child, other in zip(want.value, got.value, strict=False)]
    rest = want.value[len(pairs) :] + got.value[len(pairs) :]
    return sum(part for part, _ in pairs), sum(size for _, size in pairs) + sum(child.size for child in rest)


def _plain(node: Node) -> Any:
    """The JSON value of an answer's node."""
    if node.kind == "dict":
        return {key: _plain(child) for key, child in node.value.items()}
    if node.kind == "list":
        return [_plain(child) for child in node.value]
    return node.value


def _leaf(want: Node, got: Node, work: Work) -> float:
    if want.kind == "text" and got.kind in ("text", "number"):
        return 0.0 if got.text is None or want.text is None else anls(got.text, want.text, work)
    if want.kind == "number" and got.kind in ("text", "number"):
        made_number = fields.number(got.value)
        return float(made_number is not None and made_number == fields.number(want.value))
    return float(want.kind == got.kind and same(want.value, got.value))


def ratio(total: float, length: int) -> float:
    """Score in [0, 1] of a sum of similarities; exactly 1.0 only if nothing is wrong."""
    return 1.0 if total == length else min(total / length, 0.999_999)


def score(want: Any, got: Any, settings: dict[str, Any]) -> float:
    """ANLS* in [0, 1] of an answer's JSON value. Raises ValueFormatError: too large to be compared."""
    return ratio(*similarity(tree(want, settings), tree(got), Work()))


def by_key(
    want: dict[str, Any], got: dict[str, Any], settings: dict[str, Any]
) -> tuple[float, dict[str, float]]:
    """(ANLS* of two objects, score of each wanted key), in one pass. Raises ValueFormatError: too large to be compared."""
    wanted, given, work = tree(want, settings), tree(got), Work()
    work.spend(1)
    pairs = {
        key: similarity(child, given.value[key], work) if key in given.value else (0.0, child.size)
        for key, child in wanted.value.items()
    }
    invented = sum(child.size for key, child in given.value.items() if key not in wanted.value)
    total, length = (
        sum(part for part, _ in pairs.values()),
        sum(size for _, size in pairs.values()) + invented,
    )
    return ratio(total, length) if length else 1.0, {key: ratio(*pair) for key, pair in pairs.items()}
