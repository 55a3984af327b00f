"""Whether the kernel killed for want of memory. Invariant: said of SIGKILL only while the kernel counted such a death.

The count is that of this process's own control group, where what it starts is too; jailed programs have groups of their own
and do not count here. Where no count can be read, nothing is ever said to have died of it.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
WORDS = re.compile(r"out of memory|OutOfMemory|MemoryError|cannot allocate memory", re.IGNORECASE)
"""How engines, interpreters and operating systems say that there was not enough."""
_SIGNALLED = 128
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def counters(membership: str, mount: Path = MOUNT) -> list[Path]:
    """Where the kernel counts for the group that `membership` (/proc/self/cgroup) names, version 1 and 2; may not be there."""
    found: list[Path] = []
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        within = path.lstrip("/")
        if "memory" in controllers.split(","):
            top = mount / "memory"
            found += [top / within / "memory.oom_control", top / "memory.oom_control"]
        elif not controllers:
            for top in (mount, mount / "unified"):
                found += [top / within / "memory.events.local", top / "memory.events.local"]
    return found


def kills(places: list[Path]) -> int | None:
    """Processes of the group that the kernel has killed for want of memory; None: that cannot be read."""
    for place in places:
        try:
            found = _COUNT.search(place.read_text())
        except OSError:
            continue
        if found:
            return int(found[1])
    return None


class Witness:
    """Looks at the count now and then, so that a death is laid to what was counted since the last look and no earlier."""

    def __init__(self, places: list[Path] | None = None) -> None:
        self._places = counters(Path("/proc/self/cgroup").read_text()) if places is None else places
        self._seen = kills(self._places)
        self._fresh = 0

    def look(self) -> None:
        """What has been counted since the last look may explain the deaths that are found now."""
        seen = kills(self._places)
        self._fresh = 0 if seen is None or self._seen is None else max(0, seen - self._seen)
        self._seen = seen

    def explains(self, status: int, last_line: str) -> bool:
        """Whether a process that ended with this status (128 + N, or -N, for signal N) died for want of memory."""
        if status in (-signal.SIGKILL, _SIGNALLED + signal.SIGKILL):
            if not self._fresh:
                return False
            self._fresh -= 1
            return True
        return status != 0 and WORDS.search(last_line) is not None
