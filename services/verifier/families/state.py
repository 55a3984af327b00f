"""The working folder and what is checked in it. Invariant: a check reads only facts recorded after the program was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from services.verifier import specs
from services.verifier.jail import FileEntry, Outcome
from services.verifier.jail.job import Change, JobError, check_path

KINDS = {
    "file": ("path", "text", "exact"),
    "absent": ("path",),
    "dir": ("path",),
    "stdout": ("text", "exact"),
    "exit": ("code",),
}
Read = Callable[[str], bytes | None]

OUR_KILLS = ("wall", "cpu", "output")
"""Causes that say the verifier stopped the command: the files then depend on the moment."""


@dataclass(frozen=True, slots=True)
class State:
    """Entries of /w by path, what the last command printed and how it ended (`exit N` or another cause).

    A command that does nothing leaves `State(entries, b"", 0)`.
    """

    entries: Mapping[str, Change]
    stdout: bytes = b""
    exit_code: int | None = 0


def initial(files: Mapping[str, str]) -> State:
    """The state before any command: the spec's files and the folders they need."""
    entries: dict[str, Change] = {}
    for path, text in files.items():
        raw = text.encode("utf-8")
        entries[path] = Change(path, "file", 0o644, len(raw), sha256(raw).hexdigest())
        parts = path.split("/")
        for folder in ("/".join(parts[:n]) for n in range(1, len(parts))):
            entries.setdefault(folder, Change(folder, "dir", 0o755, 0, ""))
    return State(entries)


def after(before: State, outcome: Outcome) -> State:
    """The state a command left, from the state it started in and the recorded diff."""
    entries = dict(before.entries)
    for change in outcome.diff.deleted:
        entries.pop(change.path, None)
        for path in [path for path in entries if path.startswith(change.path + "/")]:
            del entries[path]
    for change in (*outcome.diff.created, *outcome.diff.changed):
        entries[change.path] = change
    return State(entries, outcome.stdout, outcome.exit_code if outcome.cause == "exit" else None)


def entry_files(files: Mapping[str, str]) -> dict[str, FileEntry]:
    """The spec's files as the jail takes them."""
    return {path: FileEntry(text.encode("utf-8")) for path, text in files.items()}


def check_files(spec: dict[str, Any]) -> None:
    """Raises SpecError unless `files` maps relative paths to text and `protected` lists paths."""
    for path, text in specs.table(spec.get("files", {}), "spec.files").items():
        specs.text(text, f"spec.files.{path}", empty=True)
        _path(path, f"spec.files.{path}")
    for index, path in enumerate(specs.texts(spec.get("protected", []), "spec.protected")):
        _path(path, f"spec.protected[{index}]")


def check_checks(checks: Any, where: str) -> None:
    """Raises SpecError unless `checks` is a non-empty list of well-formed checks."""
    for index, check in enumerate(specs.items(checks, where, least=1)):
        here = f"{where}[{index}]"
        kind = specs.choice(specs.table(check, here).get("kind"), tuple(KINDS), f"{here}.kind")
        specs.keys(check, ("kind", "weight", *KINDS[kind]), here)
        if "path" in KINDS[kind]:
            _path(check.get("path"), f"{here}.path")
        if "text" in KINDS[kind]:
            specs.text(check.get("text"), f"{here}.text", empty=True)
        if kind == "exit":
            specs.whole(check.get("code"), f"{here}.code")
        specs.number(check.get("weight", 1.0), f"{here}.weight", low=1e-6, high=1e6)


def _path(path: Any, where: str) -> None:
    try:
        check_path(specs.text(path, where))
    except JobError as error:
        raise specs.SpecError(f"{where}: {error}") from error


def holds(check: Mapping[str, Any], state: State) -> bool:
    """Whether one check holds. Text is compared without trailing line ends, unless the check says `exact`."""
    kind = check["kind"]
    if kind == "exit":
        return state.exit_code is not None and state.exit_code == check["code"]
    if kind == "stdout":
        want, got = check["text"].encode("utf-8"), state.stdout
        return bool(got == want) if check.get("exact") else bool(got.rstrip(b"\n") == want.rstrip(b"\n"))
    entry = state.entries.get(check["path"])
    if kind == "absent":
        return entry is None
    if kind == "dir":
        return entry is not None and entry.type == "dir"
    return entry is not None and entry.type == "file" and entry.digest in _digests(check)


def _digests(check: Mapping[str, Any]) -> tuple[str, ...]:
    text = check["text"].encode("utf-8")
    # A file's text with or without its last line end; more line ends than that are another file.
    made = (
        (text,) if check.get("exact") else (text, text.removesuffix(b"\n"), text.removesuffix(b"\n") + b"\n")
    )
    return tuple(sha256(each).hexdigest() for each in made)


def label(check: Mapping[str, Any]) -> str:
    """A check's name for evidence."""
    return f"{check['kind']} {check.get('path', check.get('code', ''))}".strip()


def touched(outcome: Outcome) -> list[str]:
    """Paths that the command created, changed or deleted, sorted."""
    return sorted(
        {change.path for change in (*outcome.diff.created, *outcome.diff.changed, *outcome.diff.deleted)}
    )


def strays(paths: Sequence[str], checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those of `paths` that no check speaks of: neither the path of one, nor a folder on the way to one."""
    wanted = [check["path"] for check in checks if "path" in check]
    return [path for path in paths if not any(want == path or want.startswith(path + "/") for want in wanted)]


def broken(paths: Sequence[str], protected: Sequence[str]) -> list[str]:
    """Those of `paths` that are protected, lie in a protected folder, or hold one."""
    return [
        path
        for path in paths
        if any(path == p or path.startswith(p + "/") or p.startswith(path + "/") for p in protected)
    ]
