"""The line to the candidate, from the process of the tests.

Invariant: what arrives is data of exact types, a stand-in (stand.py), or an exception of a kind known here (names.py). A test
in which the candidate once gave no answer does not pass, whatever the test itself makes of that.
"""

# ruff: noqa: D102, E402, PTH109 (a stand-in for whatever the tests do)
TYPE_CHECKING = False
import os
import socket
import sys
import warnings

from services.verifier.inside import wire
from services.verifier.inside.kit import Clock, Watch
from services.verifier.inside.line import BAD, Line, Lost

if TYPE_CHECKING:
    from typing import Any

    from services.verifier.inside.names import Names

START_S = 10.0
SECRET = frozenset(("PYTEST_CURRENT_TEST", "PYTEST_VERSION"))
"""Variables that say which test runs."""


class Session:
    """The candidate's process of the test that runs now; it is started by the first call.

    It lasts as long as the test, or as a wider fixture that asked the candidate for something.
    """

    def __init__(self, control: socket.socket, clock: Clock, case_s: float, cpu_s: float) -> None:
        self.control, self.clock, self.case_s, self.cpu_s = control, clock, case_s, cpu_s
        self.names: Names
        self.open = self.gone = False
        self.line: Line | None = None
        self.asked = 0
        self.wide: dict[int, str] = {}  # fixtures that hold something, and why they are no good
        self.missed: list[AttributeError] = []
        self.patched: dict[str, Any] = {}
        self.said: dict[str, Any] = {}
        control.settimeout(START_S)

    def begin(self) -> None:
        self.open, Lost.seen = True, ""
        if self.line is not None:
            try:
                self.line.watch.again()
            except OSError:
                self.drop()

    def lost(self) -> str:
        """Why this test cannot pass, if the candidate once gave no answer in it or in a fixture that it may use."""
        # An error that left the look-up has been seen by a line of the tests'; `hasattr` sees none.
        missed = any(each.__traceback__ and each.__traceback__.tb_next for each in self.missed)
        lacks = "a name that the answer lacks" if missed else ""
        return Lost.seen or next(filter(None, self.wide.values()), lacks)

    def end(self) -> None:
        """After each test: nothing of its process is asked again, unless a wider fixture holds something."""
        self.open = False
        self.missed.clear()
        if not self.wide:
            self.drop()

    def drop(self) -> None:
        if self.line is not None:
            self.line.close(self.clock)
            self.line = None

    def start(self) -> Line:
        if self.gone:
            raise Lost("no process for the answer")
        if not self.open:
            raise Lost("the answer can be called in a test only, not while tests are collected")
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self.control, [b"c"], [theirs.fileno()])
            pid = self.control.recv(4)
            if len(pid) != 4:  # noqa: PLR2004 (the id's bytes)
                self.gone = True
                raise Lost("no process for the answer")
            self.line = Line(ours, Watch(self.clock, int.from_bytes(pid, "big"), self.case_s, self.cpu_s))
        except OSError as error:
            self.gone = True  # nobody waits for it again
            raise Lost("no process for the answer") from error
        self.said = {}
        self.names.begin()
        for name, value in list(self.patched.items()):
            self.ask("setname", [name, value])
        return self.line

    def context(self) -> "dict[str, Any]":
        """How the tests have set the stage since the last call."""
        changed: dict[str, Any] = {}
        cwd, now = os.getcwd(), {name: value for name, value in os.environ.items() if name not in SECRET}
        if cwd != self.said.get("cwd"):
            changed["cwd"] = self.said["cwd"] = cwd
        before = self.said.get("env", BEGUN)
        if now != before:
            changed["env"] = {n: now.get(n) for n in {**before, **now} if now.get(n) != before.get(n)}
            self.said["env"] = now
        return changed

    def ask(self, what: str, args: "list[Any]", named: "dict[str, Any] | None" = None) -> "Any":
        """The value of one operation. Raises the exception that the candidate raised, or Lost."""
        self.asked += 1
        line = self.line or self.start()
        line.check()
        names = self.names
        try:
            trees = [wire.tagged(part, names.tree) for part in (args, named or {})]
            call = wire.packed([what, *trees, self.context()])
        except BAD as error:
            raise Lost("what cannot be given to the answer") from error
        try:
            line.feed(call)
            while (said := line.message())[0] == "f":
                line.feed(names.called(said))
            return self.answered(said, args, named or {})
        except Lost:
            self.drop()
            raise

    def answered(self, said: "list[Any]", args: "list[Any]", named: "dict[str, Any]") -> "Any":
        names = self.names
        try:
            kind, rest = said[0], said[-3:]
            value: Any = None
            if kind not in ("v", "a", "e", "s") or len(said) != (4 if kind == "s" else 5):
                raise Lost({"l": "the answer did not load"}.get(kind, "an answer that is no data"))
            if kind == "v":
                value = wire.plain(said[1], names.value)
            elif kind == "a":
                value = args[said[1]]
                renew(value, value, names.tree)
            elif kind == "e":
                value = names.error(said[1])
            both: list[Any] = [args, named]
            for given, changed in zip(both, rest[:2], strict=True):
                for place, tree in changed:
                    renew(given[place], wire.plain(tree, names.value), names.tree)
            self.printed(rest[2])
        except BAD as error:
            raise Lost("an answer that is no data") from error
        if kind == "e":
            raise value
        if kind == "s":
            raise StopIteration
        return value

    def printed(self, rest: "list[Any]") -> None:
        """What the candidate wrote and warned of goes where the tests look for it."""
        out, err, warned = rest
        for stream, text in ((sys.stdout, out), (sys.stderr, err)):
            if type(text) is not str:
                raise ValueError("no text")
            if text:
                stream.write(text)
        for name, text in warned:
            kind = self.names.built_in(name)
            if type(text) is not str or not issubclass(kind, Warning):
                raise ValueError("no warning")
            warnings.warn(kind(text), stacklevel=4)


def hidden(name: str, session: Session) -> bool:
    """Whether only Python or the runner of the tests asks for that attribute, and the candidate is not asked."""
    return name.startswith(("__", "_mock_", "_pytest")) or (name.startswith("_") and not session.open)


BEGUN = {name: value for name, value in os.environ.items() if name not in SECRET}


def renew(mine: "Any", theirs: "Any", tree: "Any") -> None:
    """What the candidate did to a list, dictionary or set that it was given."""
    if type(mine) is not type(theirs) or type(mine) not in (list, dict, set):
        raise ValueError("an argument of another type")
    if wire.tagged(mine, tree) == wire.tagged(theirs, tree):
        return
    mine.clear()
    (mine.extend if type(mine) is list else mine.update)(theirs)
