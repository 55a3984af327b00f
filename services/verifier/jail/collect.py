"""Read an overlay's upper folder after the run, trusting nothing in it.

Invariant: no link is followed, nothing but a regular file is opened, no read can wait, and the entries, the depth, the
bytes of names and the bytes of content are bounded, whatever the program left there. Everything of the job is dead
when this runs; should something change all the same, it is an error and never a wrong answer.
"""

# Names are bytes below a descriptor, which pathlib does not know.
from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from services.verifier.jail.syscalls import open_beneath
from services.verifier.jail.tree import MAX_PATH, Entry, display, sha256

MAX_DEPTH = 64
# Only the kernel can have set it: overlayfs stores what the program calls so under another name (user.overlay.overlay.*;
# before Linux 6.7 it refused such names), and lets nobody make a 0/0 device or rename to one.
OPAQUE = "user.overlay.opaque"
CHUNK = 1 << 20
BLOCK = 512  # the unit of st_blocks, on every file system
SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


@dataclass(slots=True)
class Caps:
    """What one walk may still use up.

    `entries` counts paths, `read_bytes` what files really take on the disk, `hole_bytes` what sparse files only claim
    to hold, and `name_bytes` the bytes of all paths (a deep tree multiplies them).
    """

    entries: int
    read_bytes: int
    hole_bytes: int = 16 << 20
    name_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Collected:
    """The layer found; `complete` is False when a cap left something out, and `why` is then one line about the first."""

    layer: dict[bytes, Entry]
    complete: bool
    why: str = ""


def collect(folder: str | int, caps: Caps, *, keep: bool) -> Collected:
    """Walk `folder` (an absolute path of our own, or a descriptor of it). `keep` also keeps the bytes of files.

    Costs a few system calls when the folder is empty. Raises OSError.
    """
    layer: dict[bytes, Entry] = {}
    missed: list[str] = []
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    root = os.open(".", flags, dir_fd=folder) if isinstance(folder, int) else os.open(folder, flags)
    # Open folders on the way to where we are: descriptor, path prefix, names not yet looked at.
    stack = [(root, b"", listing(root, caps))]
    try:
        while stack:
            folder_fd, prefix, names = stack[-1]
            name = next(names, None)
            if name is None:
                os.close(folder_fd)
                stack.pop()
                continue
            path = prefix + name
            if caps.entries <= 0 or caps.name_bytes < len(path):
                missed.append(f"{display(path)!r:.200} and more: too many files")
                break
            caps.entries -= 1
            caps.name_bytes -= len(path)
            entry, fd, miss = look(folder_fd, name, caps, keep=keep)
            layer[path] = entry
            # Of a folder, too: with a shorter path there would be room for no name in it.
            if not miss and len(path) > (MAX_PATH if fd is None else MAX_PATH - 2):
                miss = f"its path is too long: {len(path)} bytes"
            if not miss and fd is not None and len(stack) >= MAX_DEPTH:
                miss = "it lies too deep"
            if miss:
                missed.append(f"{display(path)!r:.200}: {miss}")
            if fd is None:
                continue
            if miss:
                os.close(fd)
            else:
                stack.append((fd, path + b"/", listing(fd, caps)))
    finally:
        for fd, _, _ in stack:
            os.close(fd)
    return Collected(layer, complete=not missed, why=missed[0] if missed else "")


def listing(fd: int, caps: Caps) -> Iterator[bytes]:
    """The names in a folder, sorted; of a folder with more than may still be looked at, just one more than that."""
    with os.scandir(fd) as found:
        return iter(sorted(os.fsencode(item.name) for item in itertools.islice(found, caps.entries + 1)))


def look(folder_fd: int, name: bytes, caps: Caps, *, keep: bool) -> tuple[Entry, int | None, str]:
    """One name: its entry, an open descriptor if it is a folder, and why it was not read whole ("" if it was)."""
    info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    mode, kind = stat.S_IMODE(info.st_mode), stat.S_IFMT(info.st_mode)
    if kind == stat.S_IFREG:
        entry, miss = read_file(folder_fd, name, info, caps, keep=keep)
        return entry, None, miss
    if kind == stat.S_IFDIR:
        fd = open_beneath(folder_fd, name, os.O_RDONLY | os.O_DIRECTORY)
        return Entry("dir", mode, 0, "", opaque=is_opaque(fd)), fd, ""
    if kind == stat.S_IFLNK:
        target = os.readlink(name, dir_fd=folder_fd)
        return Entry("symlink", 0o777, len(target), sha256(target), target), None, ""
    if kind == stat.S_IFCHR and info.st_rdev == 0:
        return Entry("whiteout", 0, 0, ""), None, ""
    return Entry(SPECIAL[kind], mode, 0, ""), None, ""


def is_opaque(fd: int) -> bool:
    """Whether the kernel marked the folder as hiding what lies below it."""
    try:
        return os.getxattr(fd, OPAQUE) == b"y"
    except OSError:
        return False  # no such attribute, or a tmpfs without attributes (kernel before 6.6)


def read_file(
    folder_fd: int, name: bytes, info: os.stat_result, caps: Caps, *, keep: bool
) -> tuple[Entry, str]:
    """A regular file's entry, and why its digest is empty ("" if it is not): a cap. Raises OSError."""
    mode, size = stat.S_IMODE(info.st_mode), info.st_size
    stored = min(size, info.st_blocks * BLOCK)
    if stored > caps.read_bytes or size - stored > caps.hole_bytes:
        return Entry("file", mode, size, ""), f"{size} bytes ({stored} of them stored) are too many"
    caps.read_bytes -= stored
    caps.hole_bytes -= size - stored
    fd = open_beneath(folder_fd, name, os.O_RDONLY)
    try:
        found = os.fstat(fd)
        if not (stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) == (info.st_dev, info.st_ino)):
            raise OSError(f"{display(name)!r} was replaced while it was collected")
        digest, parts, left = hashlib.sha256(), [], size
        while left >= 0 and (chunk := os.read(fd, CHUNK)):
            left -= len(chunk)
            digest.update(chunk)
            if keep:
                parts.append(chunk)
        if left:
            raise OSError(f"{display(name)!r} changed its size while it was collected")
    finally:
        os.close(fd)
    return Entry("file", mode, size, digest.hexdigest(), b"".join(parts)), ""
