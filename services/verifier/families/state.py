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

Read = Callable[[str], bytes | None]

OUR_KILLS = ("wall", "cpu", "output")
"""Causes that say the verifier stopped the command: the files then depend on the moment."""


def nothing(_: str) -> bytes | None:
    """The reader of a state whose files were not kept."""
    return None


@dataclass(frozen=True, slots=True)
class State:
    """Entries of /w by path, what the last command printed and how it ended (`exit N` or another cause).

    A command that does nothing leaves `State(entries, b"", 0)`. `read` gives the bytes of a regular file, where kept.
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
    for change in outcome.diff.deleted:
        entries.pop(change.path, None)
        for path in [path for path in entries if path.startswith(change.path + "/")]:
            del entries[path]
    for change in (*outcome.diff.created, *outcome.diff.changed):
        entries[change.path] = change
    kept = outcome.snapshot
    read = kept.read if isinstance(kept, Snapshot) else nothing
    return State(entries, outcome.stdout, outcome.exit_code if outcome.cause == "exit" else None, read)


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
    """Paths that the command created, changed or deleted, sorted."""
    return sorted(
        {change.path for change in (*outcome.diff.created, *outcome.diff.changed, *outcome.diff.deleted)}
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
