"""Calls written as JSON or in Python syntax. Invariant: text becomes names and plain data, and nothing of it is evaluated."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from typing import Any

from services.verifier.values import ValueFormatError, depth, is_plain, parse_json

MAX_BITS = 1328  # 400 decimal digits, as in JSON
MAX_BYTES = 16_384
MAX_DEPTH = 16
MAX_RUN = 64


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a function's name and its named arguments."""

    name: str
    arguments: dict[str, Any]


def parse_json_calls(text: str, *, short: bool) -> list[Call]:
    """Calls of a JSON answer: one call, or a list of calls. Raises ValueFormatError."""
    value = parse_json(text.strip(), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    return _json_calls(value if isinstance(value, list) else [value], short=short)


def parse_json_turns(text: str, *, short: bool, turns: int) -> list[list[Call]]:
    """Turns of a JSON answer: a list of lists of calls; for one turn also its calls alone. Raises ValueFormatError."""
    value = parse_json(text.strip(), max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    items = value if isinstance(value, list) else [value]
    if all(isinstance(item, list) for item in items):
        return [_json_calls(item, short=short) for item in items]
    if turns == 1:
        return [_json_calls(items, short=short)]
    raise ValueFormatError("a list of turns was expected, each a list of calls")


def _json_calls(calls: list[Any], *, short: bool) -> list[Call]:
    found: list[Call] = []
    for call in calls:
        if not isinstance(call, dict):
            raise ValueFormatError("a call must be a JSON object")
        if (
            call.keys() == {"name", "arguments"}
            and isinstance(call["name"], str)
            and isinstance(call["arguments"], dict)
        ):
            found.append(Call(call["name"], call["arguments"]))
        elif short and call and all(isinstance(arguments, dict) for arguments in call.values()):
            found.extend(Call(name, arguments) for name, arguments in call.items())
        else:
            raise ValueFormatError('a call must read {"name": ..., "arguments": {...}}')
    return found


def parse_python_calls(text: str, *, dotted: bool = False) -> list[Call]:
    """Calls of an answer in Python syntax: `f(a=1)`, `[f(a=1), g()]` or one call a line; arguments are named literals.

    With `dotted` a name may have several parts, as in `calendar.add(day=1)`.

    Raises:
        ValueFormatError: anything else.
    """
    found: list[Call] = []
    for node in _statements(text):
        found.extend(
            _call(item, dotted=dotted) for item in (node.elts if isinstance(node, ast.List) else [node])
        )
    return found


def parse_python_turns(text: str, *, dotted: bool, turns: int) -> list[list[Call]]:
    """Turns of an answer in Python syntax: a list of calls a line, or one list of such lists. Raises ValueFormatError."""
    nodes = _statements(text)
    if (
        len(nodes) == 1
        and isinstance(nodes[0], ast.List)
        and all(isinstance(e, ast.List) for e in nodes[0].elts)
    ):
        nodes = nodes[0].elts
    if all(isinstance(node, ast.List) for node in nodes):
        return [[_call(item, dotted=dotted) for item in getattr(node, "elts", ())] for node in nodes]
    if turns == 1 and not any(isinstance(node, ast.List) for node in nodes):
        return [[_call(node, dotted=dotted) for node in nodes]]
    raise ValueFormatError("a list of calls a turn was expected")


def _statements(text: str) -> list[ast.expr]:
    """The expressions that the text consists of. Raises ValueFormatError."""
    text = text.strip()
    if len(text) > MAX_BYTES:
        raise ValueFormatError(f"{len(text)} characters, {MAX_BYTES} are allowed")
    if depth(text) > MAX_DEPTH:
        raise ValueFormatError(f"nested deeper than {MAX_DEPTH}")
    if _longest_run(text) > MAX_RUN:
        raise ValueFormatError("too many signs in a row")  # `----...1` nests without a bracket
    try:
        with warnings.catch_warnings():
            # An answer such as "\d" would write a line to our log, and under -W error fail in another way.
            warnings.simplefilter("ignore")
            body = ast.parse(text, mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueFormatError(f"not Python calls: {getattr(error, 'msg', type(error).__name__)}") from error
    found: list[ast.expr] = []
    for statement in body:
        if not isinstance(statement, ast.Expr):
            raise ValueFormatError("only calls are allowed")
        found.append(statement.value)
    if not text.isascii() and not _as_written(text, body):
        raise ValueFormatError("a name is written in other letters than it has")
    return found


def _as_written(text: str, body: list[ast.stmt]) -> bool:
    """Whether each name stands in the text letter by letter; the parser folds wide and raised ones into plain ones."""
    lines = [line.encode("utf-8") for line in re.split("\r\n|\r|\n", text)]
    for node in (each for statement in body for each in ast.walk(statement)):
        if isinstance(node, ast.Name):
            written = lines[node.lineno - 1][node.col_offset : node.end_col_offset]
            same = written == node.id.encode("utf-8")
        elif isinstance(node, ast.keyword) and node.arg is not None:
            written = lines[node.lineno - 1][node.col_offset :]
            same = written.startswith(node.arg.encode("utf-8"))
        elif isinstance(node, ast.Attribute):
            written = lines[(node.end_lineno or 1) - 1][: node.end_col_offset]
            same = written.endswith(node.attr.encode("utf-8"))
        else:
            continue
        if not same:
            return False
    return True


def _longest_run(text: str) -> int:
    """Longest run of operator signs and `not`s, blanks ignored."""
    longest = run = 0
    for char in text:
        if char in "+-~*@^.|&<>/%=":
            run += 1
            longest = max(longest, run)
        elif not char.isspace():
            run = 0
    return longest


def _name(node: ast.expr, *, dotted: bool) -> str:
    parts: list[str] = []
    while dotted and isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueFormatError("only plain calls by name are allowed")
    return ".".join([node.id, *reversed(parts)])


def _call(node: ast.expr, *, dotted: bool) -> Call:
    if not isinstance(node, ast.Call):
        raise ValueFormatError("only plain calls by name are allowed")
    name = _name(node.func, dotted=dotted)
    if node.args:
        raise ValueFormatError("arguments must be named")
    arguments: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueFormatError("arguments must be named, each once")
        arguments[keyword.arg] = _literal(keyword.value)
    return Call(name, arguments)


def _literal(node: ast.expr, depth: int = 1) -> Any:
    """The JSON value of a literal; a tuple counts as a list. Raises ValueFormatError."""
    value: Any
    if (
        depth > MAX_DEPTH
    ):  # `_statements` cannot tell: it takes what follows a quotation mark within '...' for a text
        raise ValueFormatError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(node, ast.Constant):
        value = node.value
    elif (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
    ):
        operand = node.operand.value
        if isinstance(operand, bool) or not isinstance(operand, int | float):
            raise ValueFormatError("only numbers can be negative")
        value = -operand
    elif isinstance(node, ast.List | ast.Tuple):
        value = [_literal(item, depth + 1) for item in node.elts]
    elif isinstance(node, ast.Dict):
        keys = [_literal(key, depth + 1) if key is not None else None for key in node.keys]
        if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
            raise ValueFormatError("keys must be texts, each once")
        value = dict(zip(keys, (_literal(item, depth + 1) for item in node.values), strict=True))
    else:
        raise ValueFormatError("arguments must be literals")
    if not is_plain(value) or not _encodable(value):
        raise ValueFormatError("an argument is not plain data")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        # A hexadecimal literal may have any length; written out in digits it could not even be shown.
        raise ValueFormatError("an argument is a whole number of more than 400 digits")
    return value


def _encodable(value: Any) -> bool:
    """Whether a literal has no lone surrogate, which JSON text could not carry either; lists were checked by their parts."""
    texts = [value, *value] if isinstance(value, dict) else [value]
    return not any(
        isinstance(text, str) and any("\ud800" <= char <= "\udfff" for char in text) for text in texts
    )
