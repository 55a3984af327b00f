"""How late the last process of a job dies after its wall limit.

Invariant: seen from outside, by the kernel's own news of each death.
"""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from pathlib import Path

NAME = "overrun"
WALL_S = 0.15
TREE = 4
"""Processes of `floor hang`."""
FIND_S = 5.0
DIE_S = 10.0
LOOK_S = 0.002
COMM = b"hang\n"


class Watch:
    """Finds the processes of a hanging job below some cgroups and waits for their deaths; runs beside the job."""

    def __init__(self, groups: list[Path]) -> None:
        self._groups = groups
        self.seen = 0
        self.dead_at = 0.0
        """CLOCK_MONOTONIC seconds of the last death."""

    def run(self) -> None:
        """Watch one job, from before its start."""
        pids = self._find()
        self.seen = len(pids)
        poller, handles = select.poll(), []
        for pid in pids:
            with suppress(ProcessLookupError):  # dead already
                handles.append(os.pidfd_open(pid))
                poller.register(handles[-1], select.POLLIN)
        left, end = len(handles), time.monotonic() + DIE_S
        while left and time.monotonic() < end:
            for handle, _ in poller.poll(DIE_S * 1000):
                poller.unregister(handle)
                left -= 1
        self.dead_at = time.monotonic()
        for handle in handles:
            os.close(handle)

    def _find(self) -> set[int]:
        """The tree's processes; looked for again and again, since nothing tells when a program has forked."""
        end = time.monotonic() + FIND_S
        found: set[int] = set()
        while len(found) < TREE and time.monotonic() < end:
            time.sleep(LOOK_S)
            for group in self._groups:
                for path in group.rglob("cgroup.procs"):
                    with suppress(OSError):  # the group, or a process, has gone
                        found.update(pid for pid in map(int, path.read_text().split()) if named(pid))
        return found


def named(pid: int) -> bool:
    """Whether it is a process of the hanging program."""
    return Path(f"/proc/{pid}/comm").read_bytes() == COMM
