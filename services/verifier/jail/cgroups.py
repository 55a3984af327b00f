"""The cgroups of a slot and of its jobs: made fresh, read, killed and removed.

A slot has one group of its name in each tree, without processes of its own; below it `keep` holds nsjail and the
keeper, and `job-N` one job. Invariant: after `remove` no group of that name is left in any hierarchy and no process
that was ever in one is alive; a job's group is never reused, because an old one keeps a wrong peak and old counters.
"""

# Paths are text: this runs for every job, and pathlib costs more than the calls.
# ruff: noqa: PTH102, PTH106, PTH110
from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from services.verifier.jail.hierarchy import NEEDED, V2, Tree
from services.verifier.jail.job import Limits

REMOVE_DEADLINE_S = 5.0
RETRY_S = 0.0005
KEEP = "keep"
SOCKET_SHARE = 4
INIT_PIDS = 1  # the job's own init is not the program's


def _write(path: str, text: str) -> None:
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
                _write(f"{path}/cgroup.kill", "1")
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
                _write(f"{path}/cgroup.subtree_control", f"+{name}")
        self.keep.make()
        self.keeps_peak = os.path.exists(f"{self.keep.path('pids')}/pids.peak")  # from Linux 6.11


class JobGroups(Groups):
    """The groups of one job below those of the slot `slot`. Create with `create`; always end with `remove`."""

    def __init__(self, trees: Sequence[Tree], slot: str, number: int) -> None:
        super().__init__(trees, f"{slot}/job-{number}")

    def create(self, limits: Limits) -> None:
        """Make the groups and set the limits. Raises OSError; the caller then still calls `remove`."""
        self.make()
        memory, size = self._path["memory"], str(limits.memory_bytes)
        if self._version["memory"] == 1:
            _write(f"{memory}/memory.limit_in_bytes", size)
            swap, bound = f"{memory}/memory.memsw.limit_in_bytes", size
        else:
            _write(f"{memory}/memory.max", size)
            swap, bound = f"{memory}/memory.swap.max", "0"
        if self._version["memory"] == 1:
            self._bound_sockets(limits.memory_bytes // SOCKET_SHARE)
        with suppress(FileNotFoundError):  # absent where swap accounting is off
            _write(swap, bound)
        _write(f"{self._path['pids']}/pids.max", str(limits.pids + INIT_PIDS))

    def _bound_sockets(self, size: int) -> None:
        """What TCP buffers may hold; on v2 that counts as memory, on v1 it would be free without this."""
        with suppress(FileNotFoundError):  # a kernel without it bounds all sockets of the machine together
            _write(f"{self._path['memory']}/memory.kmem.tcp.limit_in_bytes", str(size))

    def cpu_s(self) -> float:
        """CPU seconds used so far by all that ever ran in the group."""
        path = self._path["cpu"]
        if self._version["cpu"] == V2:
            return counter(_read(f"{path}/cpu.stat"), b"usage_usec") / 1e6
        return int(_read(f"{path}/cpuacct.usage")) / 1e9

    def peak_memory(self) -> int:
        """Highest memory use in bytes (0 where the kernel does not record it)."""
        path = self._path["memory"]
        name = "memory.max_usage_in_bytes" if self._version["memory"] == 1 else "memory.peak"
        try:
            return int(_read(f"{path}/{name}"))
        except FileNotFoundError:
            return 0

    def oom_kills(self) -> int:
        """Processes that the kernel killed because the memory limit was reached."""
        name = "memory.oom_control" if self._version["memory"] == 1 else "memory.events"
        return counter(_read(f"{self._path['memory']}/{name}"), b"oom_kill")

    def refused_forks(self) -> int:
        """Forks and threads refused because the pids limit was reached."""
        return counter(_read(f"{self._path['pids']}/pids.events"), b"max")

    def peak_pids(self) -> int:
        """The most processes and threads that the program had at once (where `SlotGroups.keeps_peak`)."""
        return self._pids("peak")

    def pids(self) -> int:
        """Processes and threads that the program has now."""
        return self._pids("current")

    def _pids(self, which: str) -> int:
        return max(int(_read(f"{self._path['pids']}/pids.{which}")) - INIT_PIDS, 0)


def orphans(trees: Sequence[Tree], name: str) -> list[Path]:
    """Groups of that slot name that a crashed process left behind."""
    return [path for tree in trees for path in [tree.parent / name] if path.is_dir()]
