"""Put a tree of files on the disk, and check what lies there.

Invariant: laying out never follows a link and works whatever the names are; what lies there afterwards is what the tree
says, down to a fixed time of last change, so that no program can tell one restoration from another.
"""

from __future__ import annotations

import os

from services.verifier.jail.collect import Caps, collect
from services.verifier.jail.layers import SnapshotError
from services.verifier.jail.tree import DIR_BITS, FILE_BITS, MAX_PATH, Entry, Tree, check, tree_digest

# 2000-01-01: equal for all files, so that make takes a restored target for newer than none of its sources.
TIME_NS = 946_684_800 * 10**9


def lay_out(folder: int, tree: Tree, owner: int) -> None:
    """Make everything of `tree` in the empty folder of the descriptor `folder`, owned by user and group `owner`.

    Raises OSError, and ValueError for a tree that cannot be laid out (`tree.check`).
    """
    check(tree)
    paths = sorted(tree)  # a folder sorts before what is in it
    for path in paths:
        _write(folder, path, tree[path], owner)
    for path in reversed(paths):  # a folder's time after all that is made in it
        os.utime(path, ns=(TIME_NS, TIME_NS), dir_fd=folder, follow_symlinks=False)


def _write(folder: int, path: bytes, entry: Entry, owner: int) -> None:
    if entry.kind == "symlink":
        os.symlink(entry.content, path, dir_fd=folder)
        os.chown(path, owner, owner, dir_fd=folder, follow_symlinks=False)
        return
    if entry.kind == "dir":
        os.mkdir(path, 0o700, dir_fd=folder)
        bits, flags = DIR_BITS, os.O_RDONLY | os.O_DIRECTORY
    else:
        bits, flags = FILE_BITS, os.O_WRONLY | os.O_CREAT | os.O_EXCL
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        view = memoryview(entry.content)
        while view:
            view = view[os.write(fd, view) :]
        os.fchown(fd, owner, owner)
        os.fchmod(fd, entry.mode & bits)
    finally:
        os.close(fd)


def verify(folder: int | str, tree: Tree) -> None:
    """Read back what lies in `folder` and compare its digest with that of `tree`.

    Raises SnapshotError when they differ, OSError when the folder cannot be read.
    """
    size = sum(entry.size for entry in tree.values())
    # One more of each than there should be: enough to see that there is too much.
    found = collect(
        folder, Caps(len(tree) + 1, size + 1, size + 1, sum(map(len, tree)) + MAX_PATH), keep=False
    )
    expected, actual = tree_digest(tree), tree_digest(found.layer)
    if actual != expected:
        raise SnapshotError(
            f"restored files have the digest {actual[:12]}, their snapshot has {expected[:12]}"
        )
