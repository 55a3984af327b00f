"""Read an overlay's upper folder after the run, trusting nothing in it.

Invariant: no link is followed, nothing but a regular file is opened, no read can wait, and the entries, the depth and
the bytes read are bounded, whatever the program left there. Everything of the job is dead when this runs.
"""

# Names are bytes below a descriptor, which pathlib does not know.
# ruff: noqa: PTH208
from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass

from services.verifier.jail.syscalls import open_beneath
from services.verifier.jail.tree import Entry, sha256

MAX_DEPTH = 64
OPAQUE = "user.overlay.opaque"
CHUNK = 1 << 20
SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


@dataclass(slots=True)
class Caps:
    """What one walk may still use up: entries, and bytes read from files."""

    entries: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Collected:
    """The layer found; `complete` is False when a cap left something out."""

    layer: dict[bytes, Entry]
    complete: bool


def collect(folder: str, caps: Caps, *, keep: bool) -> Collected:
    """Walk `folder` (absolute path of our own). `keep` also keeps the bytes of files. Raises OSError.

    Costs two system calls when the folder is empty.
    """
    layer: dict[bytes, Entry] = {}
    complete = True
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    # Open folders on the way to where we are: descriptor, path prefix, names not yet looked at.
    stack = [(root, b"", sorted(os.listdir(root)))]
    try:
        while stack:
            folder_fd, prefix, names = stack[-1]
            if not names:
                os.close(folder_fd)
                stack.pop()
                continue
            name = os.fsencode(names.pop(0))
            if caps.entries <= 0:
                return Collected(layer, complete=False)
            caps.entries -= 1
            path = prefix + name
            entry, fd, whole = look(folder_fd, name, caps, keep=keep)
            layer[path] = entry
            complete = complete and whole
            if fd is None:
                continue
            if len(stack) >= MAX_DEPTH:
                os.close(fd)
                complete = False
            else:
                stack.append((fd, path + b"/", sorted(os.listdir(fd))))
        return Collected(layer, complete=complete)
    finally:
        for fd, _, _ in stack:
            os.close(fd)


def look(folder_fd: int, name: bytes, caps: Caps, *, keep: bool) -> tuple[Entry, int | None, bool]:
    """One name: its entry, an open descriptor if it is a folder, and whether it was read whole."""
    info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    mode, kind = stat.S_IMODE(info.st_mode), stat.S_IFMT(info.st_mode)
    if kind == stat.S_IFREG:
        return read_file(folder_fd, name, info, caps, keep=keep)
    if kind == stat.S_IFDIR:
        fd = open_beneath(folder_fd, name, os.O_RDONLY | os.O_DIRECTORY)
        return Entry("dir", mode, 0, "", opaque=is_opaque(fd)), fd, True
    if kind == stat.S_IFLNK:
        target = os.readlink(name, dir_fd=folder_fd)
        return Entry("symlink", 0o777, len(target), sha256(target), target), None, True
    if kind == stat.S_IFCHR and info.st_rdev == 0:
        return Entry("whiteout", 0, 0, ""), None, True
    return Entry(SPECIAL[kind], mode, 0, ""), None, True


def is_opaque(fd: int) -> bool:
    """Overlayfs hides the attribute from the program, so only the kernel can have set it."""
    try:
        return os.getxattr(fd, OPAQUE) == b"y"
    except OSError:
        return False  # no such attribute, or a tmpfs without attributes (kernel before 6.6)


def read_file(
    folder_fd: int, name: bytes, info: os.stat_result, caps: Caps, *, keep: bool
) -> tuple[Entry, int | None, bool]:
    """A regular file's entry; past the byte cap (a sparse file can claim anything) its digest stays empty."""
    mode, size = stat.S_IMODE(info.st_mode), info.st_size
    if size > caps.read_bytes:
        return Entry("file", mode, size, ""), None, False
    caps.read_bytes -= size
    fd = open_beneath(folder_fd, name, os.O_RDONLY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{name!r} changed its kind while it was collected")
        digest, parts = hashlib.sha256(), []
        while chunk := os.read(fd, CHUNK):
            digest.update(chunk)
            if keep:
                parts.append(chunk)
    finally:
        os.close(fd)
    return Entry("file", mode, size, digest.hexdigest(), b"".join(parts)), None, True
