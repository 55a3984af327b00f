"""What is checked of a final state. Invariant: a check reads only facts recorded after the program was killed, never a link.

A kind that needs a file's content is false where there is no regular file of that path, or its content was not kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from services.verifier import specs
from services.verifier.families.state import State, check_place
from services.verifier.jail import Change
from services.verifier.values import ValueFormatError, is_plain, parse_json, same

MAX_JSON = 1 << 20
TYPES = ("file", "dir", "symlink")

KINDS = {
    "file": ("path", "text", "exact"),
    "absent": ("path",),
    "dir": ("path",),
    "stdout": ("text", "exact"),
    "exit": ("code",),
    "exists": ("path",),
    "type": ("path", "type"),
    "mode": ("path", "mode"),
    "size": ("path", "bytes", "least", "most"),
    "sha256": ("path", "sha256"),
    "link": ("path", "target"),
    "contains": ("path", "text"),
    "lines": ("path", "count"),
    "json": ("path", "pointer", "value"),
}
CONTENT = ("contains", "lines", "json")
"""Kinds for which the run must keep the files."""
SHAPES = {
    "mode": (re.compile(r"[0-7]{3,4}"), "octal text such as 755"),
    "sha256": (re.compile(r"[0-9a-f]{64}"), "64 hex digits in lower case"),
    "pointer": (re.compile(r"(?:/(?:[^~/]|~[01])*)*"), "a JSON pointer (RFC 6901) such as /rows/0/name"),
}


def check_checks(checks: Any, where: str, *, least: int = 1) -> None:
    """Raises SpecError unless `checks` is a list of at least `least` well-formed checks."""
    for index, check in enumerate(specs.items(checks, where, least=least)):
        here = f"{where}[{index}]"
        kind = specs.choice(specs.table(check, here).get("kind"), tuple(KINDS), f"{here}.kind")
        specs.keys(check, ("kind", "weight", *KINDS[kind]), here)
        if "path" in KINDS[kind]:
            check_place(check.get("path"), f"{here}.path")
        _check_own(kind, check, here)
        specs.number(check.get("weight", 1.0), f"{here}.weight", low=1e-6, high=1e6)


def _check_own(kind: str, check: dict[str, Any], here: str) -> None:
    """Raises SpecError unless what this kind needs is there."""
    for name in KINDS[kind]:
        if name in ("text", "target"):
            specs.text(check.get(name), f"{here}.{name}", empty=kind in ("file", "stdout"))
        elif name in ("code", "count") or (name in ("bytes", "least", "most") and name in check):
            specs.whole(check.get(name), f"{here}.{name}")
        elif name == "type":
            specs.choice(check.get(name), TYPES, f"{here}.{name}")
        elif name in SHAPES:
            shape, said = SHAPES[name]
            text = specs.text(
                check.get(name, "" if name == "pointer" else None), f"{here}.{name}", empty=True
            )
            if not shape.fullmatch(text):
                raise specs.SpecError(f"{here}.{name} must be {said}, got {text[:20]!r}")
        elif name == "value" and ("value" not in check or not is_plain(check["value"])):
            raise specs.SpecError(f"{here}.value must be given, as JSON")
    if kind == "size" and not {"bytes", "least", "most"} & check.keys():
        raise specs.SpecError(f"{here} needs bytes, least or most")


def needs_content(checks: Any) -> bool:
    """Whether one of the checks reads a file."""
    return any(check["kind"] in CONTENT for check in checks)


def holds(check: Mapping[str, Any], state: State) -> bool:
    """Whether one check holds. Text is compared without trailing line ends, unless the check says `exact`."""
    kind = check["kind"]
    if kind == "exit":
        return state.exit_code is not None and state.exit_code == check["code"]
    if kind == "stdout":
        want, got = check["text"].encode("utf-8"), state.stdout
        return bool(got == want) if check.get("exact") else bool(got.rstrip(b"\n") == want.rstrip(b"\n"))
    entry = state.entries.get(check["path"])
    if kind == "absent" or entry is None:
        return kind == "absent" and entry is None
    if kind in CONTENT:
        content = state.read(check["path"]) if entry.type == "file" else None
        return content is not None and _CONTENT[kind](check, content)
    return _FACTS[kind](check, entry)


def _sized(check: Mapping[str, Any], entry: Change) -> bool:
    return (
        entry.type == "file"
        and check.get("bytes", entry.size) == entry.size
        and check.get("least", 0) <= entry.size <= check.get("most", entry.size)
    )


_FACTS: Mapping[str, Callable[[Mapping[str, Any], Change], bool]] = {
    "file": lambda check, entry: entry.type == "file" and entry.digest in _digests(check),
    "dir": lambda _, entry: entry.type == "dir",
    "exists": lambda *_: True,
    "type": lambda check, entry: bool(entry.type == check["type"]),
    "mode": lambda check, entry: entry.type in ("file", "dir") and entry.mode == int(check["mode"], 8),
    "size": _sized,
    "sha256": lambda check, entry: entry.type == "file" and bool(entry.digest == check["sha256"]),
    "link": lambda check, entry: (
        entry.type == "symlink"
        and entry.digest == sha256(check["target"].encode("utf-8", "surrogateescape")).hexdigest()
    ),
}


def _json(check: Mapping[str, Any], content: bytes) -> bool:
    try:
        value = parse_json(content, max_bytes=MAX_JSON)
    except ValueFormatError:
        return False
    for step in check.get("pointer", "").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and re.fullmatch(r"0|[1-9][0-9]{0,8}", key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return False
    return same(value, check["value"])


_CONTENT: Mapping[str, Callable[[Mapping[str, Any], bytes], bool]] = {
    "contains": lambda check, content: check["text"].encode("utf-8") in content,
    "lines": lambda check, content: bool(
        content.count(b"\n") + (content[-1:] not in (b"", b"\n")) == check["count"]
    ),
    "json": _json,
}


def _digests(check: Mapping[str, Any]) -> tuple[str, ...]:
    text = check["text"].encode("utf-8")
    # A file's text with or without its last line end; more line ends than that are another file.
    made = (
        (text,) if check.get("exact") else (text, text.removesuffix(b"\n"), text.removesuffix(b"\n") + b"\n")
    )
    return tuple(sha256(each).hexdigest() for each in made)


def label(check: Mapping[str, Any]) -> str:
    """A check's name for evidence."""
    return f"{check['kind']} {check.get('path', check.get('code', ''))}{check.get('pointer', '')}".strip()
