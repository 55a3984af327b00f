"""The cgroups of a slot and of its jobs: made, killed and removed.

A slot has one group of its name in each tree, without processes of its own; below it `keep` holds nsjail and the
keeper, and `job-N` one job (jobgroups.py). Invariant: after `remove` no group of that name is left in any hierarchy and
no process that was ever in one is alive.
"""

# Paths are text: this runs for every job, and pathlib costs more than the calls.
# ruff: noqa: PTH102, PTH106, PTH110
from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from services.verifier.jail.hierarchy import NEEDED, V2, Tree

REMOVE_DEADLINE_S = 5.0
RETRY_S = 0.0005
KEEP = "keep"


def write(path: str, text: str) -> None:
    """Write a file of a group. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536)
    finally:
        os.close(fd)


def counter(text: bytes, name: bytes) -> int:
    """Value of the line `NAME N` in a flat-keyed cgroup file; 0 when the line is absent."""
    for line in text.splitlines():
        key, _, value = line.partition(b" ")
        if key == name:
            return int(value)
    return 0


class Groups:
    """The groups of one name, one in each tree. `name` may be a path below the trees' parents."""

    def __init__(self, trees: Sequence[Tree], name: str) -> None:
        self.paths = [f"{tree.parent}/{name}" for tree in trees]
        self._version = {role: tree.version for tree in trees for role in tree.roles}
        self._path = {role: path for tree, path in zip(trees, self.paths, strict=True) for role in tree.roles}

    def version(self, role: str) -> int:
        """The cgroup version of the tree that plays a role."""
        return self._version[role]

    def path(self, role: str) -> str:
        """Folder of the group that plays a role."""
        return self._path[role]

    def make(self) -> None:
        """Make the groups. Raises OSError; the caller then still calls `remove`."""
        for path in self.paths:
            os.mkdir(path)

    def open_procs(self) -> list[int]:
        """Descriptors of the cgroup.procs files, for a process that joins by writing "0" to each."""
        return [os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for path in self.paths]

    def members(self) -> list[int]:
        """Processes now in any of the groups or below; those that are only waiting to be reaped do not count."""
        found: set[int] = set()
        for path in self.paths:
            for below in (path, *children(path)):
                try:
                    found.update(int(word) for word in _read(f"{below}/cgroup.procs").split())
                except FileNotFoundError:
                    continue
        return sorted(found)

    def kill(self) -> bool:
        """SIGKILL everything in the groups and below; True if that was atomic (v2): then nothing can have escaped."""
        path = self._path.get("kill")
        if path is not None:
            try:
                write(f"{path}/cgroup.kill", "1")
            except FileNotFoundError:
                pass  # a kernel before 5.14, or the group is not there: one by one then
            else:
                return True
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return False

    def remove(self) -> None:
        """Kill what is left and remove the groups and all below. Raises OSError when one cannot be removed in time."""
        end = time.monotonic() + REMOVE_DEADLINE_S
        for path in self.paths:
            while True:
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > end:
                        raise
                    # Groups below, or a process that is dead but not yet unlinked from its group; no event tells.
                    self.kill()
                    if not remove_children(path):
                        time.sleep(RETRY_S)


def children(path: str) -> list[str]:
    """The groups right below that at `path`."""
    try:
        with os.scandir(path) as found:
            return [item.path for item in found if item.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def remove_children(path: str) -> bool:
    """Remove the groups right below `path` (there are none deeper); False when there is none or one is busy."""
    below = children(path)
    for group in below:
        try:
            os.rmdir(group)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
    return bool(below)


class SlotGroups(Groups):
    """The groups of a slot, which hold those of its jobs."""

    def __init__(self, trees: Sequence[Tree], name: str) -> None:
        super().__init__(trees, name)
        self.keep = Groups(trees, f"{name}/{KEEP}")
        self.keeps_peak = False
        self._trees = trees

    def make(self) -> None:
        """Make the slot's groups and that of the keeper. Raises OSError; the caller then still calls `remove`."""
        super().make()
        for tree, path in zip(self._trees, self.paths, strict=True):
            wanted = sorted(tree.roles & set(NEEDED)) if tree.version == V2 else []
            for name in wanted:
                write(f"{path}/cgroup.subtree_control", f"+{name}")
        self.keep.make()
        self.keeps_peak = os.path.exists(f"{self.keep.path('pids')}/pids.peak")  # from Linux 6.11


def orphans(trees: Sequence[Tree], name: str) -> list[Path]:
    """Groups of that slot name that a crashed process left behind."""
    return [path for tree in trees for path in [tree.parent / name] if path.is_dir()]
