"""The cgroups of one job: made fresh, read, killed and removed.

Invariant: after `remove` no group of that name is left in any hierarchy and no process that was ever in one is
alive; a group is never reused, because an old one keeps a wrong peak and old counters.
"""

# Paths are text: this runs for every job, and pathlib costs more than the calls.
# ruff: noqa: PTH102, PTH106, PTH110
from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from services.verifier.jail.hierarchy import V2, Tree
from services.verifier.jail.job import Limits
from services.verifier.jail.streams import high

DEAD_DEADLINE_S = 5.0
REMOVE_DEADLINE_S = 5.0
RETRY_S = 0.001


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 65536).decode()
    finally:
        os.close(fd)


def counter(text: str, name: str) -> int:
    """Value of the line `NAME N` in a flat-keyed cgroup file; 0 when the line is absent."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


class JobCgroups:
    """One group of the same name in each tree. Create with `create`; always end with `remove`."""

    def __init__(self, trees: Sequence[Tree], name: str) -> None:
        self.paths = [f"{tree.parent}/{name}" for tree in trees]
        self._version = {role: tree.version for tree in trees for role in tree.roles}
        self._path = {role: path for tree, path in zip(trees, self.paths, strict=True) for role in tree.roles}
        self._swap_file: bool | None = None

    def create(self, limits: Limits) -> None:
        """Make the groups and set the limits. Raises OSError; the caller then still calls `remove`."""
        for path in self.paths:
            os.mkdir(path)
        memory, size = self._path["memory"], str(limits.memory_bytes)
        if self._version["memory"] == 1:
            _write(f"{memory}/memory.limit_in_bytes", size)
            swap, bound = f"{memory}/memory.memsw.limit_in_bytes", size
        else:
            _write(f"{memory}/memory.max", size)
            swap, bound = f"{memory}/memory.swap.max", "0"
        if self._swap_file is None:
            self._swap_file = os.path.exists(swap)  # absent where swap accounting is off
        if self._swap_file:
            _write(swap, bound)
        # The jail's own two processes (nsjail outside, init inside) are not the program's.
        _write(f"{self._path['pids']}/pids.max", str(limits.pids + 2))

    def open_procs(self) -> list[int]:
        """Descriptors of the cgroup.procs files, for a child that joins by writing "0" to each."""
        return [high(os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)) for path in self.paths]

    def cpu_s(self) -> float:
        """CPU seconds used so far by all that ever ran in the group."""
        path = self._path["cpu"]
        if self._version["cpu"] == V2:
            return counter(_read(f"{path}/cpu.stat"), "usage_usec") / 1e6
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
        return counter(_read(f"{self._path['memory']}/{name}"), "oom_kill")

    def refused_forks(self) -> int:
        """Forks and threads refused because the pids limit was reached."""
        return counter(_read(f"{self._path['pids']}/pids.events"), "max")

    def members(self) -> list[int]:
        """Processes now in any of the groups; those that are only waiting to be reaped do not count."""
        found: set[int] = set()
        for path in self.paths:
            try:
                found.update(int(word) for word in _read(f"{path}/cgroup.procs").split())
            except FileNotFoundError:
                continue
        return sorted(found)

    def kill(self) -> bool:
        """SIGKILL everything in the group; True if that was atomic (v2), so that nothing can have escaped."""
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

    def end(self, handle: int, deadline_s: float = DEAD_DEADLINE_S) -> int:
        """Kill until the process of the pidfd `handle`, which reaps all the others, has ended.

        Waits at most `deadline_s`; returns the number of survivors, which is 0 unless the kernel failed to kill.
        """
        stop = time.monotonic() + deadline_s
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        while (left := stop - time.monotonic()) > 0:
            # One by one, new forks can slip in between: then repeat soon.
            again_s = left if self.kill() else RETRY_S
            if poller.poll(again_s * 1000):
                break
        return len(self.members())

    def remove(self) -> None:
        """Kill what is left and remove the groups. Raises OSError when one cannot be removed in time."""
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
                    # The last process is dead but not yet unlinked from its group; no event tells when it is.
                    self.kill()
                    time.sleep(RETRY_S)


def orphans(trees: Sequence[Tree], name: str) -> list[Path]:
    """Groups of that slot name that a crashed process left behind."""
    return [path for tree in trees for path in [tree.parent / name] if path.is_dir()]
