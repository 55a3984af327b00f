"""A fake API as data. Invariant: a call either does all its steps or none, and nothing of a task or an answer is executed.

`state` is JSON; a function is a list of steps over it. A path is a list of keys and indices. Every value, and every part of a
path, is a literal or an expression: {"arg": NAME} (with "default" for an optional one), {"object": {key: ...}}, {"list": [...]},
{"value": literal}. Steps: need (present, equals, least, most, contains), get, set, add, append, remove, transfer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from services.verifier import specs
from services.verifier.families.calls import Call
from services.verifier.families.differences import State, canonical, copied
from services.verifier.values import is_plain

STEPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "need": (("path",), ("present", "equals", "least", "most", "contains")),
    "get": (("path",), ()),
    "set": (("path", "value"), ()),
    "add": (("path", "value"), ()),
    "append": (("path", "value"), ()),
    "remove": (("path",), ("value",)),
    "transfer": (("from", "to", "value"), ()),
}
"""Operation -> keys it needs, keys it may have."""
TAGS = ("arg", "object", "list", "value")
MAX_STEPS = 32
MAX_PATH = 16
MAX_DEPTH = 16


class RefusedError(Exception):
    """A call that cannot be done in this state; the message is one line. The state is as before."""


def check(api: Any, schemas: Mapping[str, Any], where: str) -> None:
    """Raises SpecError unless `state` is an object and every offered function has steps that name its own parameters."""
    specs.keys(specs.table(api, where), ("state", "functions"), where)
    if not is_plain(specs.table(api.get("state"), f"{where}.state")):
        raise specs.SpecError(f"{where}.state is not plain JSON data")
    functions = specs.table(api.get("functions"), f"{where}.functions")
    odd = sorted(set(functions) ^ set(schemas))
    if odd:
        raise specs.SpecError(f"{where}.functions and spec.functions differ in {odd[0]!r}")
    for name, steps in functions.items():
        place = f"{where}.functions.{name}"
        if len(specs.items(steps, place, least=1)) > MAX_STEPS:
            raise specs.SpecError(f"{place} has {len(steps)} steps, {MAX_STEPS} are allowed")
        for index, step in enumerate(steps):
            _check_step(step, set(schemas[name].get("properties", {})), f"{place}[{index}]")


def _check_step(step: Any, names: set[str], where: str) -> None:
    op = specs.choice(specs.table(step, where).get("op"), tuple(STEPS), f"{where}.op")
    needed, optional = STEPS[op]
    specs.keys(step, ("op", *needed, *optional), where)
    for key in needed:
        if key not in step:
            raise specs.SpecError(f"{where}.{key} is missing")
    if op == "need" and sum(key in step for key in optional) != 1:
        raise specs.SpecError(f"{where} must have exactly one of {', '.join(optional)}")
    for key in ("path", "from", "to"):
        if key in step:
            parts = specs.items(step[key], f"{where}.{key}", least=1)
            if len(parts) > MAX_PATH:
                raise specs.SpecError(f"{where}.{key} is longer than {MAX_PATH}")
            for index, part in enumerate(parts):
                _check_value(part, names, f"{where}.{key}[{index}]", 0)
    for key in ("value", "equals", "least", "most", "contains"):
        if key in step:
            _check_value(step[key], names, f"{where}.{key}", 0)
    if not isinstance(step.get("present", True), bool):
        raise specs.SpecError(f"{where}.present must be true or false")


def _check_value(value: Any, names: set[str], where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise specs.SpecError(f"{where} is nested deeper than {MAX_DEPTH}")
    if not isinstance(value, dict):
        if isinstance(value, list) or not is_plain(value):
            raise specs.SpecError(
                f'{where} must be a scalar or an expression; write {{"value": ...}} for a list'
            )
        return
    tags = [tag for tag in TAGS if tag in value]
    if len(tags) != 1:
        raise specs.SpecError(f"{where} must have exactly one of {', '.join(TAGS)}")
    specs.keys(value, ("arg", "default") if tags[0] == "arg" else tags, where)
    inner = value[tags[0]]
    if tags[0] == "arg" and specs.text(inner, f"{where}.arg") not in names:
        raise specs.SpecError(f"{where}.arg {inner!r} is no parameter of this function")
    if tags[0] == "object":
        for key, each in specs.table(inner, f"{where}.object").items():
            _check_value(each, names, f"{where}.object.{key}", depth + 1)
    if tags[0] == "list":
        for index, each in enumerate(specs.items(inner, f"{where}.list")):
            _check_value(each, names, f"{where}.list[{index}]", depth + 1)
    if not is_plain(inner if tags[0] == "value" else value.get("default")):
        raise specs.SpecError(f"{where} is not plain JSON data")


def after(functions: Mapping[str, Sequence[Any]], state: State, call: Call) -> State:
    """The state after a call whose arguments fit their schema; `state` itself is left as it was.

    Raises:
        RefusedError: there is no such function, or one of its steps cannot be done.
    """
    if call.name not in functions:
        raise RefusedError(f"no function {call.name!r}")
    made: State = copied(state)
    for step in functions[call.name]:
        _step(made, step, call.arguments)
    return made


def _value(given: Any, arguments: dict[str, Any]) -> Any:
    if not isinstance(given, dict):
        return given
    if "arg" in given:
        if given["arg"] not in arguments and "default" not in given:
            raise RefusedError(f"parameter {given['arg']!r} is missing")
        return copied(arguments.get(given["arg"], given.get("default")))
    if "object" in given:
        return {key: _value(each, arguments) for key, each in given["object"].items()}
    if "list" in given:
        return [_value(each, arguments) for each in given["list"]]
    return copied(given["value"])


def _place(state: State, path: Sequence[Any], arguments: dict[str, Any]) -> tuple[Any, Any]:
    """(container, key) that a path ends at; the container exists."""
    parts = [_value(part, arguments) for part in path]
    holder: Any = state
    for part in parts[:-1]:
        if not _has(holder, part):
            raise RefusedError(f"there is no {part!r}")
        holder = holder[part]
    return holder, parts[-1]


def _has(holder: Any, key: Any) -> bool:
    if isinstance(holder, dict):
        return isinstance(key, str) and key in holder
    return isinstance(holder, list) and type(key) is int and 0 <= key < len(holder)


def _read(state: State, path: Sequence[Any], arguments: dict[str, Any]) -> Any:
    holder, key = _place(state, path, arguments)
    if not _has(holder, key):
        raise RefusedError(f"there is no {key!r}")
    return holder[key]


def _write(state: State, path: Sequence[Any], arguments: dict[str, Any], value: Any) -> None:
    holder, key = _place(state, path, arguments)
    if not _has(holder, key) and not (isinstance(holder, dict) and isinstance(key, str)):
        raise RefusedError(f"{key!r} cannot be set there")
    holder[key] = value


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError("a number is needed there")
    return value


def _sum(one: float, two: float) -> int | float:
    try:
        total = one + two
    except OverflowError as error:
        raise RefusedError("a number grows too large") from error
    if not math.isfinite(total):
        raise RefusedError("a number grows too large")
    return total


def _step(state: State, step: dict[str, Any], arguments: dict[str, Any]) -> None:
    match step["op"]:
        case "need":
            _need(state, step, arguments)
        case "get":
            _read(state, step["path"], arguments)
        case "set":
            _write(state, step["path"], arguments, _value(step["value"], arguments))
        case "add":
            old = _number(_read(state, step["path"], arguments))
            _write(state, step["path"], arguments, _sum(old, _number(_value(step["value"], arguments))))
        case "append":
            holder = _read(state, step["path"], arguments)
            if not isinstance(holder, list):
                raise RefusedError("a list is needed there")
            holder.append(_value(step["value"], arguments))
        case "remove":
            _remove(state, step, arguments)
        case _:
            amount = _number(_value(step["value"], arguments))
            have = _number(_read(state, step["from"], arguments))
            if not 0 < amount <= have:
                raise RefusedError("the amount is not there, or not above zero")
            _write(state, step["from"], arguments, _sum(have, -amount))
            gets = _number(_read(state, step["to"], arguments))
            _write(state, step["to"], arguments, _sum(gets, amount))


def _need(state: State, step: dict[str, Any], arguments: dict[str, Any]) -> None:
    if "present" in step:
        holder, key = _place(state, step["path"], arguments)
        if _has(holder, key) != step["present"]:
            raise RefusedError(f"there is {'no' if step['present'] else 'already'} {key!r}")
        return
    found = _read(state, step["path"], arguments)
    if "equals" in step:
        right = canonical(found) == canonical(_value(step["equals"], arguments))
    elif "contains" in step:
        wanted = canonical(_value(step["contains"], arguments))
        right = isinstance(found, list) and any(canonical(each) == wanted for each in found)
    elif "least" in step:
        right = _number(found) >= _number(_value(step["least"], arguments))
    else:
        right = _number(found) <= _number(_value(step["most"], arguments))
    if not right:
        raise RefusedError("what the function needs does not hold")


def _remove(state: State, step: dict[str, Any], arguments: dict[str, Any]) -> None:
    holder, key = _place(state, step["path"], arguments)
    if not _has(holder, key):
        raise RefusedError(f"there is no {key!r}")
    if "value" not in step:
        del holder[key]
        return
    wanted = canonical(_value(step["value"], arguments))
    if not isinstance(holder[key], list):
        raise RefusedError("a list is needed there")
    for index, each in enumerate(holder[key]):
        if canonical(each) == wanted:
            del holder[key][index]
            return
    raise RefusedError("the list does not hold that value")
