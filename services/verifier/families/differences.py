"""States of a fake API compared. Invariant: two states differ exactly where a leaf of one is not that of the other."""

from __future__ import annotations

from typing import Any

State = dict[str, Any]
"""JSON data."""
Path = tuple[str | int, ...]


def copied(value: Any) -> Any:
    """A copy of JSON data."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return [copied(each) for each in value] if isinstance(value, list) else value


def canonical(value: Any) -> str:
    """Text that two JSON values share if they are equal; numbers to twelve digits, so that 0.1 + 0.2 is 0.3 and 5.0 is 5."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        short = float(f"{value:.12g}")
        return str(int(short)) if short.is_integer() else repr(short)
    return repr(value)


def leaves(value: Any, path: Path = ()) -> dict[Path, str]:
    """Path -> canonical text of every leaf; an empty object or list is a leaf."""
    pairs: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    if not pairs:
        return {path: canonical(value)}
    found: dict[Path, str] = {}
    for key, each in pairs:
        found |= leaves(each, (*path, key))
    return found


def changes(before: State, now: State) -> set[tuple[Path, str]]:
    """(path, new value) of every leaf that differs; "" stands for a leaf that is gone."""
    old, new = leaves(before), leaves(now)
    made = {(path, text) for path, text in new.items() if old.get(path) != text}
    return made | {(path, "") for path in old if path not in new}
