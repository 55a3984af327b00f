"""One socket from the tests to a process of the candidate's, under the bounds of that process.

Invariant: nothing that happens to it is an exception that a test could expect; each is Lost, which ends the test as failed.
"""

# ruff: noqa: D102, E402
TYPE_CHECKING = False
import os
import select

from services.verifier.inside import wire
from services.verifier.inside.kit import TICK_S, Clock, Watch, used

if TYPE_CHECKING:
    import socket
    from typing import Any

MOST = 1 << 20
BAD = (ValueError, TypeError, LookupError, RecursionError, ArithmeticError, AttributeError, OSError)
"""What reading an answer that is no data may raise."""


class Lost(BaseException):
    """The candidate gave no answer. No test that expects an exception may take this for one: `seen` ends it as failed."""

    seen = ""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        Lost.seen = Lost.seen or why


class Line:
    """A socket to one process of the candidate's, and the watch over that process."""

    def __init__(self, ours: "socket.socket", watch: Watch) -> None:
        self.ours, self.watch = ours, watch
        ours.setblocking(False)  # noqa: FBT003 (the standard library's)

    def feed(self, data: bytes) -> None:
        if len(data) > MOST:
            raise Lost("a call is too large")
        view = memoryview(data)
        while view:
            try:
                view = view[self.ours.send(view) :]
            except BlockingIOError:
                self.wait(select.POLLOUT)
            except OSError as error:
                raise Lost("the answer's process is gone") from error

    def take(self, count: int) -> bytes:
        if count > MOST:
            raise Lost("an answer is too large")
        data = b""
        while len(data) < count:
            try:
                part = self.ours.recv(count - len(data))
            except BlockingIOError:
                self.wait(select.POLLIN)
                continue
            except OSError:
                part = b""
            if not part:
                raise Lost("the answer's process is gone")
            data += part
        return data

    def wait(self, what: int) -> None:
        poll = select.poll()
        poll.register(self.ours, what)
        while not poll.poll(max(1.0, min(self.watch.left(), TICK_S) * 1000)):
            self.check()

    def check(self) -> None:
        if self.watch.over():
            raise Lost("the answer ran out of time")

    def message(self) -> "list[Any]":
        """The next message, a list that begins with a word. Raises Lost."""
        self.check()
        try:
            tree = wire.parsed(self.take(int.from_bytes(self.take(4), "big")))
        except BAD as error:
            raise Lost("an answer that is no data") from error
        if type(tree) is not list or not tree or type(tree[0]) is not str:
            raise Lost("an answer that is no message")
        return tree

    def close(self, clock: Clock) -> None:
        self.ours.close()
        clock.lost += self.watch.lost()
        try:
            clock.cpu += used(self.watch.pid)
            os.killpg(self.watch.pid, 9)
        except OSError:
            return
