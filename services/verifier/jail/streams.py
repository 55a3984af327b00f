"""Byte streams between the supervisor and a jail.

Invariant: the supervisor never waits on a pipe and never holds more than twice a stream's cap, however much is written.
"""

from __future__ import annotations

import fcntl
import os

CHUNK = 1 << 16
LOWEST = 64  # above all descriptor numbers that a child is given, so that no dup2 lands on one still needed
MARKED_FROM = 256  # below this cap there is no room for a marker between head and tail
MARKER = "\n[... {} bytes left out ...]\n"


def high(fd: int) -> int:
    """Move a descriptor to a number of at least LOWEST, closed on exec."""
    if fd >= LOWEST:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOWEST)
    os.close(fd)
    return moved


class Inflow:
    """A pipe that the program writes: keeps at most `cap` bytes and counts them all.

    With `tail` these are the first half and the last, less a line between them that says how much is left out; else
    the first `cap` bytes, nothing added: for what is parsed.
    """

    def __init__(self, cap: int, *, tail: bool = False) -> None:
        self.cap = cap
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._with_tail = tail and cap >= MARKED_FROM
        self.fd, self.far = os.pipe()
        os.set_blocking(self.fd, False)

    @property
    def content(self) -> bytes:
        """What was kept."""
        return self._assembled()[0]

    @property
    def dropped(self) -> int:
        """How many bytes were left out."""
        return self._assembled()[1]

    @property
    def truncated(self) -> bool:
        """Whether more came than was kept."""
        return self.total > self.cap

    def _assembled(self) -> tuple[bytes, int]:
        if not self.truncated:
            return bytes(self._head), 0
        if not self._with_tail:
            return bytes(self._head), self.total - self.cap
        half = self.cap // 2
        # The marker takes room from the tail, and by that changes the figure in it: an upper bound for its length.
        room = self.cap - half - len(MARKER.format(self.total))
        dropped = self.total - half - room
        both = self._head[half:] + self._tail if len(self._tail) < room else self._tail
        return bytes(self._head[:half]) + MARKER.format(dropped).encode() + bytes(both[-room:]), dropped

    def take(self) -> bool:
        """Read once. False at the end of the stream."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.total += len(data)
        room = self.cap - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data and self._with_tail:
            self._tail += data
            if len(self._tail) > self.cap:
                del self._tail[: -(self.cap // 2 + 1)]
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
        self.far, self.fd = os.pipe()
        if data:
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
