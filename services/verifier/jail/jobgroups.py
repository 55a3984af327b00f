"""The cgroups of one job: its limits, what it used, and whether they can serve another.

Invariant: every figure is of one job alone. Groups are made anew for each job, except where nothing at all tells them
from new ones: a short program that did nothing uncommon leaves no process, no counter that a limit was ever met, no more
processes at once than every job has, and no memory worth naming; the peak is set back and the time begins where it stands.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from services.verifier.jail.cgroups import Groups, counter, write
from services.verifier.jail.hierarchy import V2, Tree
from services.verifier.jail.job import Limits

SOCKET_SHARE = 4
INIT_PIDS = 1  # the job's own init is not the program's
FEWEST_PIDS = INIT_PIDS + 1
# What the kernel may still hold for a job that is gone: it counts memory in batches of 256 KiB for each processor.
RESIDUE_BYTES = 1 << 20


class JobGroups(Groups):
    """The groups of one job below those of the slot `slot`. Create with `create`; always end with `remove`.

    Their files are opened once and stay open; each figure is read at the moment it is asked for.
    """

    def __init__(self, trees: Sequence[Tree], slot: str, number: int) -> None:
        super().__init__(trees, f"{slot}/job-{number}")
        self._files: dict[str, int] = {}
        self._limits: Limits | None = None
        self._before_s = 0.0

    def create(self, limits: Limits) -> None:
        """Make the groups and set the limits. Raises OSError; the caller then still calls `remove`."""
        self.make()
        self.limit(limits)

    def limit(self, limits: Limits) -> None:
        """Set the limits. Raises OSError."""
        self._limits = limits
        memory, size = self.path("memory"), str(limits.memory_bytes)
        if self.version("memory") == 1:
            write(f"{memory}/memory.limit_in_bytes", size)
            swap, bound = f"{memory}/memory.memsw.limit_in_bytes", size
            # What TCP buffers may hold; on v2 that counts as memory, on v1 it would be free without this.
            with suppress(
                FileNotFoundError
            ):  # a kernel without it bounds all sockets of the machine together
                write(f"{memory}/memory.kmem.tcp.limit_in_bytes", str(limits.memory_bytes // SOCKET_SHARE))
        else:
            write(f"{memory}/memory.max", size)
            swap, bound = f"{memory}/memory.swap.max", "0"
        with suppress(FileNotFoundError):  # absent where swap accounting is off
            write(swap, bound)
        write(f"{self.path('pids')}/pids.max", str(limits.pids + INIT_PIDS))

    def as_new(self, limits: Limits) -> bool:
        """Whether a job with these limits finds these groups as it would find new ones; its figures then begin here.

        The job before must have ended by itself. What a kernel does not tell, or cannot set back, makes it False.
        """
        try:
            return self._as_new(limits)
        except OSError:
            return False

    def _as_new(self, limits: Limits) -> bool:
        one = self.version("memory") == 1
        if limits != self._limits or self.oom_kills() or self.refused_forks():
            return False
        if self._number("pids", "pids.current") or self._number("pids", "pids.peak") > FEWEST_PIDS:
            return False
        if self._number("memory", "memory.usage_in_bytes" if one else "memory.current") > RESIDUE_BYTES:
            return False
        # v1 sets the peak back for everybody, v2 (from Linux 6.12) for this descriptor.
        os.pwrite(self._file(self.path("memory"), self._peak_name(), os.O_RDWR), b"0", 0)
        self._before_s += self.cpu_s()
        return True

    def procs(self) -> list[int]:
        """Descriptors of the cgroup.procs files, ours to close: a process joins by writing "0" to each. Raises OSError."""
        return [self._file(path, "cgroup.procs", os.O_WRONLY) for path in self.paths]

    def cpu_s(self) -> float:
        """CPU seconds used so far by all of this job that ever ran in the group."""
        if self.version("cpu") == V2:
            used = counter(self._text("cpu", "cpu.stat"), b"usage_usec") / 1e6
        else:
            used = self._number("cpu", "cpuacct.usage") / 1e9
        return used - self._before_s

    def peak_memory(self) -> int:
        """Highest memory use in bytes (0 where the kernel does not record it)."""
        try:
            return self._number("memory", self._peak_name())
        except FileNotFoundError:
            return 0

    def oom_kills(self) -> int:
        """Processes that the kernel killed because the memory limit was reached."""
        name = "memory.oom_control" if self.version("memory") == 1 else "memory.events"
        return counter(self._text("memory", name), b"oom_kill")

    def refused_forks(self) -> int:
        """Forks and threads refused because the pids limit was reached."""
        return counter(self._text("pids", "pids.events"), b"max")

    def peak_pids(self) -> int:
        """The most processes and threads that the program had at once (where `SlotGroups.keeps_peak`)."""
        return max(self._number("pids", "pids.peak") - INIT_PIDS, 0)

    def pids(self) -> int:
        """Processes and threads that the program has now."""
        return max(self._number("pids", "pids.current") - INIT_PIDS, 0)

    def remove(self) -> None:
        """As `Groups.remove`; their files are closed whatever comes of it."""
        while self._files:
            os.close(self._files.popitem()[1])
        super().remove()

    def _peak_name(self) -> str:
        return "memory.max_usage_in_bytes" if self.version("memory") == 1 else "memory.peak"

    def _number(self, role: str, name: str) -> int:
        return int(self._text(role, name))

    def _text(self, role: str, name: str) -> bytes:
        # The peak of v2 is one of this descriptor, which must be open for writing to be set back.
        how = os.O_RDWR if name == self._peak_name() else os.O_RDONLY
        return os.pread(self._file(self.path(role), name, how), 65536, 0)

    def _file(self, folder: str, name: str, how: int) -> int:
        path = f"{folder}/{name}"
        if path not in self._files:
            try:
                self._files[path] = os.open(path, how | os.O_CLOEXEC)
            except OSError as error:
                if how != os.O_RDWR or error.errno not in (errno.EINVAL, errno.EACCES):
                    raise
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a peak that only grows
        return self._files[path]
