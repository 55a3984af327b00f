"""Byte streams between the supervisor and a jail.

Invariant: the supervisor never waits on a pipe and never holds more than a stream's cap, however much is written.
"""

from __future__ import annotations

import fcntl
import os

CHUNK = 1 << 16
LOWEST = 64  # above all descriptor numbers that a child is given, so that no dup2 lands on one still needed


def high(fd: int) -> int:
    """Move a descriptor to a number of at least LOWEST, closed on exec."""
    if fd >= LOWEST:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST)
    os.close(fd)
    return moved


class Inflow:
    """A pipe that the program writes: keeps the first `cap` bytes and counts the rest."""

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.total = 0
        self._parts: list[bytes] = []
        self._kept = 0
        read_end, write_end = os.pipe()
        self.fd, self.far = high(read_end), high(write_end)
        os.set_blocking(self.fd, False)

    @property
    def content(self) -> bytes:
        """What was kept."""
        return b"".join(self._parts)

    @property
    def truncated(self) -> bool:
        """Whether more came than was kept."""
        return self.total > self._kept

    def take(self) -> bool:
        """Read once. False at the end of the stream."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.total += len(data)
        room = self.cap - self._kept
        if room > 0:
            part = data[:room]
            self._parts.append(part)
            self._kept += len(part)
        return True

    def drain(self) -> None:
        """Read what is left in the pipe now, without waiting; for use when every writer is dead."""
        before = -1
        while self.total != before:
            before = self.total
            if not self.take():
                return

    def close_far(self) -> None:
        """Close our copy of the end that the child uses."""
        if self.far >= 0:
            os.close(self.far)
            self.far = -1

    def close(self) -> None:
        """Close both ends; closing twice is fine."""
        self.close_far()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Outflow:
    """A pipe that the program reads: the given bytes, then the end of the stream."""

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)
        read_end, write_end = os.pipe()
        self.fd, self.far = high(write_end), high(read_end)
        os.set_blocking(self.fd, False)
        self.give()

    def give(self) -> bool:
        """Write what fits. False when all is written or nobody reads any more; the pipe is then closed."""
        try:
            while self._left:
                self._left = self._left[os.write(self.fd, self._left[: CHUNK * 4]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            pass  # the program closed its standard input: the rest is not wanted
        self.close_near()
        return False

    def close_near(self) -> None:
        """Close our end: the reader sees the end of the stream."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close_far(self) -> None:
        """Close our copy of the end that the child uses."""
        if self.far >= 0:
            os.close(self.far)
            self.far = -1

    def close(self) -> None:
        """Close both ends; closing twice is fine."""
        self.close_near()
        self.close_far()
