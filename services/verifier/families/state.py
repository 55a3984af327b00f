"""The working folder as data. Invariant: a state holds only facts recorded after the program was killed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

from services.verifier import specs
from services.verifier.jail import FileEntry, Outcome, Snapshot
from services.verifier.jail.job import Change, JobError, check_path
from services.verifier.jail.tree import change, display

Read = Callable[[str], bytes | None]

OUR_KILLS = ("wall", "cpu", "output", "memory")
"""Causes that say a limit stopped the command, or a part of it: the files then depend on the moment."""


def nothing(_: str) -> bytes | None:
    """The reader of a state whose files were not kept."""
    return None


@dataclass(frozen=True, slots=True)
class State:
    """Entries of /w, what the last command printed and how it ended (`exit N` or another cause).

    The entries are by `Change.key`, so that no two names fall together. A command that does nothing leaves
    `State(entries, b"", 0)`. `read` gives the bytes of a regular file, where kept.
    """

    entries: Mapping[str, Change]
    stdout: bytes = b""
    exit_code: int | None = 0
    read: Read = nothing


def initial(files: Mapping[str, str]) -> State:
    """The state before any command: the spec's files and the folders they need."""
    entries: dict[str, Change] = {}
    for path, text in files.items():
        raw = text.encode("utf-8")
        entries[path] = Change(path, "file", 0o644, len(raw), sha256(raw).hexdigest())
        parts = path.split("/")
        for folder in ("/".join(parts[:n]) for n in range(1, len(parts))):
            entries.setdefault(folder, Change(folder, "dir", 0o755, 0, ""))

    def read(path: str) -> bytes | None:
        text = files.get(path)
        return None if text is None else text.encode("utf-8")

    return State(entries, read=read)


def after(before: State, outcome: Outcome) -> State:
    """The state a command left, from the state it started in and the recorded diff."""
    entries = dict(before.entries)
    for each in outcome.diff.deleted:
        entries.pop(each.key, None)
        for path in [path for path in entries if path.startswith(each.key + "/")]:
            del entries[path]
    for each in (*outcome.diff.created, *outcome.diff.changed):
        entries[each.key] = each
    read = reader(outcome.snapshot) if isinstance(outcome.snapshot, Snapshot) else nothing
    return State(entries, outcome.stdout, outcome.exit_code if outcome.cause == "exit" else None, read)


def standing(snapshot: Snapshot) -> State:
    """The state that a snapshot holds."""
    found = [change(path, entry) for path, entry in sorted(snapshot.tree.items())]
    return State({each.key: each for each in found}, read=reader(snapshot))


def reader(snapshot: Snapshot) -> Read:
    """Reads a snapshot's files by their exact names."""

    def read(path: str) -> bytes | None:
        entry = snapshot.tree.get(path.encode("utf-8", "surrogateescape"))
        return entry.content if entry is not None and entry.kind == "file" else None

    return read


def shown(path: str) -> str:
    """A key as text that can be written anywhere."""
    return display(path.encode("utf-8", "surrogateescape"))


def entry_files(files: Mapping[str, str], mode: int = 0o644) -> dict[str, FileEntry]:
    """The spec's files as the jail takes them."""
    return {path: FileEntry(text.encode("utf-8"), mode) for path, text in files.items()}


def check_files(spec: dict[str, Any]) -> None:
    """Raises SpecError unless `files` maps relative paths to text, and `protected` and `ignore` list paths and globs."""
    check_laid(spec.get("files", {}), "spec.files")
    for index, path in enumerate(specs.texts(spec.get("protected", []), "spec.protected")):
        check_place(path, f"spec.protected[{index}]")
    specs.texts(spec.get("ignore", []), "spec.ignore")


def check_laid(files: Any, where: str) -> None:
    """Raises SpecError unless `files` maps relative paths to text."""
    for path, text in specs.table(files, where).items():
        specs.text(text, f"{where}.{path}", empty=True)
        check_place(path, f"{where}.{path}")


def check_place(path: Any, where: str) -> None:
    """Raises SpecError unless `path` is relative and stays in its folder."""
    try:
        check_path(specs.text(path, where))
    except JobError as error:
        raise specs.SpecError(f"{where}: {error}") from error


def touched(outcome: Outcome) -> list[str]:
    """Keys of what the command created, changed or deleted, sorted."""
    return sorted(
        {each.key for each in (*outcome.diff.created, *outcome.diff.changed, *outcome.diff.deleted)}
    )


def ignored(path: str, globs: Sequence[str]) -> bool:
    """Whether `path` or a folder above it matches one of `globs` (shell patterns; `*` also matches `/`)."""
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return any(fnmatchcase(each, glob) for glob in globs for each in above)


def strays(
    paths: Sequence[str], checks: Sequence[Mapping[str, Any]], ignore: Sequence[str] = ()
) -> list[str]:
    """Those of `paths` that no check speaks of: neither the path of one, nor a folder on the way to one, nor ignored."""
    wanted = [check["path"] for check in checks if "path" in check]
    return [
        path
        for path in paths
        if not any(want == path or want.startswith(path + "/") for want in wanted)
        and not ignored(path, ignore)
    ]


def broken(paths: Sequence[str], protected: Sequence[str]) -> list[str]:
    """Those of `paths` that are protected, lie in a protected folder, or hold one."""
    return [
        path
        for path in paths
        if any(path == p or path.startswith(p + "/") or p.startswith(path + "/") for p in protected)
    ]
