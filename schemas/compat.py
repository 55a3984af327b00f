"""Whether a schema may follow another. Invariant: what the old schema allowed, the new one still accepts, field by field.

Pure; works on JSON Schema as msgspec writes it.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
Seen = frozenset[tuple[str, str]]
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def incompatibilities(old: Schema, new: Schema) -> list[str]:
    """One line for each way in which `new` refuses or forgets what `old` allowed; empty if it may follow."""
    return _compare(old, new, (old, new), "$", frozenset())


def _compare(old: Schema, new: Schema, roots: tuple[Schema, Schema], path: str, seen: Seen) -> list[str]:
    names = str(old.get("$ref", "")), str(new.get("$ref", ""))
    if all(names):
        if names in seen:
            return []
        seen |= {names}
    old, new = _resolve(old, roots[0]), _resolve(new, roots[1])
    if "anyOf" in old or "anyOf" in new:
        return _alternatives(old, new, roots, path, seen)
    if not new.keys() - {"description", "title", "default"}:
        return []  # Anything goes.
    problems = _values(old, new, path)
    problems += _bounds(old, new, path)
    problems += _fields(old, new, roots, path, seen)
    for key, label in (("items", "[]"), ("additionalProperties", "{}")):
        below_old, below_new = old.get(key), new.get(key)
        if isinstance(below_new, dict):
            before = below_old if isinstance(below_old, dict) else {}
            problems += _compare(before, below_new, roots, path + label, seen)
        elif below_new is False and below_old is not False:
            problems.append(f"{path}: unknown keys are refused now")
    return problems


def _resolve(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    return schema


def _alternatives(old: Schema, new: Schema, roots: tuple[Schema, Schema], path: str, seen: Seen) -> list[str]:
    accepted = new.get("anyOf", [new])
    problems = []
    for option in old.get("anyOf", [old]):
        tries = [_compare(option, other, roots, path, seen) for other in accepted]
        if all(tries):
            problems.append(f"{path}: narrowed: {min(tries, key=len)[0]}")
    return problems


def _values(old: Schema, new: Schema, path: str) -> list[str]:
    if "enum" in new:
        if "enum" not in old:
            return [f"{path}: narrowed to {new['enum']}"]
        gone = [value for value in old["enum"] if value not in new["enum"]]
        return [f"{path}: value {value!r} removed" for value in gone]
    before, after = old.get("type"), new.get("type")
    if after is None or before == after or (before, after) == ("integer", "number"):
        return []
    if before is None and "enum" in old:
        return []
    return [f"{path}: type {before or 'anything'} became {after}"]


def _bounds(old: Schema, new: Schema, path: str) -> list[str]:
    problems = [
        f"{path}: {key} was {old.get(key, 'unset')}, is {new[key]}"
        for key in _LOWER
        if key in new and (key not in old or new[key] > old[key])
    ]
    problems += [
        f"{path}: {key} was {old.get(key, 'unset')}, is {new[key]}"
        for key in _UPPER
        if key in new and (key not in old or new[key] < old[key])
    ]
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        problems.append(f"{path}: pattern became {new['pattern']!r}")
    return problems


def _fields(old: Schema, new: Schema, roots: tuple[Schema, Schema], path: str, seen: Seen) -> list[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    problems = [f"{path}.{name}: field removed" for name in before if name not in after]
    added = [name for name in new.get("required", ()) if name not in old.get("required", ())]
    problems += [f"{path}.{name}: field is required now" for name in added]
    for name in before.keys() & after.keys():
        problems += _compare(before[name], after[name], roots, f"{path}.{name}", seen)
    return problems
