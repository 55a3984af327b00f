"""Trees of files as data: what lies in /w before a run, what a run changed, and how the two combine.

Invariant: pure functions over plain mappings from path (bytes, relative) to `Entry`; whatever is asked of a tree is
answered without touching a disk, so that no link or FIFO of the program can be followed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from services.verifier.jail.job import Change, Diff, FileEntry, encode


@dataclass(frozen=True, slots=True)
class Entry:
    """One path. `kind`: file, dir, symlink, fifo, socket, device, or whiteout (deletes what lies below).

    `content` holds a file's bytes or a link's target, where they were kept; `opaque` marks a folder that hides all
    that lower layers have in it.
    """

    kind: str
    mode: int
    size: int
    digest: str
    content: bytes = b""
    opaque: bool = False


Tree = Mapping[bytes, Entry]
KEPT = ("file", "dir", "symlink")
MAX_PATH = 4095
"""Bytes of a path that a system call takes; what has a longer one cannot be laid out again."""
FILE_BITS, DIR_BITS = 0o777, 0o1777
"""Permission bits that are laid out: never setuid or setgid, since no user but one is left in the jail."""


def sha256(content: bytes) -> str:
    """In hex."""
    return hashlib.sha256(content).hexdigest()


def file_entry(content: bytes, mode: int) -> Entry:
    """A regular file, its content kept."""
    return Entry("file", mode & FILE_BITS, len(content), sha256(content), content)


def from_files(files: Mapping[str, FileEntry], base: Tree | None = None) -> dict[bytes, Entry]:
    """The layer of the given files, with the folders (mode 755) that they need and `base` has not."""
    tree: dict[bytes, Entry] = {}
    base = base or {}
    for name, item in files.items():
        path = encode(name)
        tree[path] = file_entry(item.content, item.mode)
        for parent in parents(path):
            if parent not in base or base[parent].kind != "dir":
                tree.setdefault(parent, Entry("dir", 0o755, 0, ""))
    return tree


def parents(path: bytes) -> Iterable[bytes]:
    """The folders above `path`, outermost first: b"a/b/c" gives b"a", b"a/b"."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def overlay(layers: Iterable[Tree]) -> dict[bytes, Entry]:
    """Stack layers, lowest first, as overlayfs does: the merged tree, without whiteouts and opaque marks."""
    merged: dict[bytes, Entry] = {}
    for layer in layers:
        hiding = {path for path, e in layer.items() if e.kind != "dir" or e.opaque}
        if hiding and merged:
            merged = {
                path: entry
                for path, entry in merged.items()
                if not any(parent in hiding for parent in parents(path))
            }
        for path, entry in layer.items():
            if entry.kind == "whiteout":
                merged.pop(path, None)
            else:
                merged[path] = Entry(entry.kind, entry.mode, entry.size, entry.digest, entry.content)
    return merged


def check(tree: Tree) -> None:
    """Raise ValueError unless everything in the tree lies in folders of the tree.

    Then laying it out in an empty folder, outermost first, can never follow a link.
    """
    for path, entry in tree.items():
        if entry.kind not in KEPT:
            raise ValueError(f"{display(path)!r:.200}: a {entry.kind} cannot be laid out")
        if len(path) > MAX_PATH:
            raise ValueError(
                f"{display(path)!r:.80}...: a path of more than {MAX_PATH} bytes cannot be laid out"
            )
        above = path.rpartition(b"/")[0]
        if above and (above not in tree or tree[above].kind != "dir"):
            raise ValueError(f"{display(path)!r:.200} lies in what is not a folder")


def plain(entry: Entry) -> Entry:
    """The entry as it can be laid out: without setuid and setgid bits."""
    bits = {"file": FILE_BITS, "dir": DIR_BITS}.get(entry.kind)
    if bits is None or entry.mode == entry.mode & bits:
        return entry
    return Entry(entry.kind, entry.mode & bits, entry.size, entry.digest, entry.content, entry.opaque)


def display(path: bytes) -> str:
    """A path as text: UTF-8, with bytes that are not UTF-8 written as a backslash, x and two hex digits."""
    return path.decode("utf-8", "backslashreplace")


def change(path: bytes, entry: Entry) -> Change:
    """An entry as it is reported."""
    shown = display(path)
    raw = b"" if shown.encode("utf-8") == path else path
    return Change(shown, entry.kind, entry.mode, entry.size, entry.digest, raw)


def compare(before: Tree, layer: Tree, *, complete: bool = True) -> Diff:
    """What `layer` (an overlay's upper folder) changes in `before`.

    A path whose kind, mode and digest are as before is no change: overlayfs copies a file up when it is only opened
    for writing, and a folder when something in it changes.
    """
    if not layer:
        return Diff(complete=complete)
    after = overlay([before, layer])
    created = [change(p, e) for p, e in after.items() if p not in before]
    deleted = [change(p, e) for p, e in before.items() if p not in after]
    changed = [
        change(path, entry)
        for path, entry in after.items()
        if path in layer and path in before and facts(entry) != facts(before[path])
    ]
    return Diff(by_path(created), by_path(changed), by_path(deleted), complete)


def facts(entry: Entry) -> tuple[str, int, int, str]:
    """What makes two entries the same."""
    return (entry.kind, entry.mode, entry.size, entry.digest)


def tree_digest(tree: Tree) -> str:
    """SHA-256, in hex, of every path with what makes it the same: two folders of equal digest hold the same files."""
    return sha256(msgspec.msgpack.encode([(path, *facts(entry)) for path, entry in sorted(tree.items())]))


def by_path(changes: list[Change]) -> tuple[Change, ...]:
    """Sorted by path."""
    return tuple(sorted(changes, key=lambda item: item.path))
