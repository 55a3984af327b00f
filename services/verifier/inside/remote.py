"""The candidate as the tests see it.

Invariant: every value that a test gets is of an exact built-in type, or a stand-in that refuses to be compared, to be true
and to be computed with a value of the tests', so that no method of the candidate's decides an assertion: each would see what
is expected (`f(x) - 6`, `6 in f(x)`) and could answer so that it holds. A test in which the candidate once gave no answer
does not pass, whatever the test itself makes of that.
"""

# ruff: noqa: BLE001, D102, E402 (a stand-in for whatever the tests do)
TYPE_CHECKING = False
import builtins
import os
import select
import socket
import sys
import types

from services.verifier.inside import wire
from services.verifier.inside.kit import TICK_S, Clock, Watch, used

if TYPE_CHECKING:
    from typing import Any, NoReturn

MOST = 1 << 20
START_S = 30.0
LOOPS = frozenset(("StopIteration", "StopAsyncIteration"))
"""Exceptions that are no errors where they arrive: `all(map(f, xs))` would hold at once."""


class Lost(BaseException):
    """The candidate gave no answer. No test that expects an exception may take this for one: `seen` ends it as failed."""

    seen = False

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        Lost.seen = True


class Line:
    """A socket to one process of the candidate's, and the watch over that process."""

    def __init__(self, ours: socket.socket, watch: Watch) -> None:
        self.ours, self.watch = ours, watch
        ours.setblocking(False)  # noqa: FBT003 (the standard library's)

    def feed(self, data: bytes) -> None:
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
            if self.watch.over():
                raise Lost("the answer ran out of time")

    def answer(self) -> "tuple[bool, Any, Any]":
        """(whether it is a value, the value or the kinds of an exception, what became of the arguments or of it)."""
        try:
            said, one, two = wire.parsed(self.take(int.from_bytes(self.take(4), "big")))
            good = said == "v"
            return good, wire.plain(one, Stand) if good else list(one), wire.plain(two, Stand)
        except (ValueError, TypeError, LookupError, RecursionError, ArithmeticError) as error:
            raise Lost("an answer that is no data") from error

    def close(self, clock: Clock) -> None:
        self.ours.close()
        clock.lost += self.watch.lost()
        try:
            clock.cpu += used(self.watch.pid)
            os.killpg(self.watch.pid, 9)
        except OSError:
            return


class Session:
    """The candidate's process of the test that runs now; it is started by the first call."""

    def __init__(self, control: socket.socket, clock: Clock, case_s: float, cpu_s: float) -> None:
        self.control, self.clock, self.case_s, self.cpu_s = control, clock, case_s, cpu_s
        self.open = False
        self.line: Line | None = None
        control.settimeout(START_S)

    def begin(self) -> None:
        self.open, Lost.seen = True, False

    @property
    def lost(self) -> bool:
        """Whether the candidate once gave no answer in this test."""
        return Lost.seen

    def end(self) -> None:
        """After each test: nothing of its process is asked again."""
        self.open = False
        if self.line is not None:
            self.line.close(self.clock)
            self.line = None

    def start(self) -> Line:
        if not self.open:
            raise Lost("the answer can be called in a test only, not while tests are collected")
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"c"], [theirs.fileno()])
        pid = self.control.recv(4)
        if len(pid) != 4:  # noqa: PLR2004 (the id's bytes)
            raise Lost("no process for the answer")
        return Line(ours, Watch(self.clock, int.from_bytes(pid, "big"), self.case_s, self.cpu_s))

    def ask(self, what: str, args: "list[Any]", named: "dict[str, Any]") -> "Any":
        """The value of one operation. Raises the built-in exception that the candidate raised, or Lost."""
        call = wire.packed([what, *(wire.tagged(part, number) for part in (args, named))])
        if len(call) > MOST:
            raise Lost("a call is too large")
        if self.line is None:
            self.line = self.start()
        self.line.feed(call)
        good, value, more = self.line.answer()
        if not good:
            raise error_of(value, more)
        if type(more) is list:
            # A function's own name is the first of what was sent, and is not sent back.
            for mine, theirs in zip(args[len(args) - len(more) :], more, strict=False):
                renew(mine, theirs)
        return value


def renew(mine: "Any", theirs: "Any") -> None:
    """What the candidate did to a list, dictionary or set that it was given."""
    if type(mine) not in (list, dict, set) or wire.tagged(mine, number) == wire.tagged(theirs, number):
        return
    if type(mine) is list:
        mine[:] = theirs
    elif type(mine) in (dict, set):
        mine.clear()
        mine.update(theirs)


def error_of(kinds: "list[Any]", given: "Any") -> BaseException:
    """The exception to raise for one of the candidate's: its nearest built-in kind."""
    if not LOOPS.isdisjoint(kind for kind in kinds if type(kind) is str):
        return Lost("the answer raised what would end a loop of the tests")
    for kind in kinds:
        found = vars(builtins).get(kind) if type(kind) is str else None
        if isinstance(found, type) and issubclass(found, Exception):
            try:
                return found(*given)
            except Exception:
                break
    return Lost("the answer raised what no test can expect")


def number(value: "Any") -> int:
    """The handle of a stand-in. Raises Lost: nothing else of the tests' can be sent."""
    if type(value) is not Stand:
        raise Lost(f"a {type(value).__name__} cannot be given to the answer")
    return object.__getattribute__(value, "_number")  # type: ignore[no-any-return]


class Stand:
    """Stands for an object that stays with the candidate."""

    __slots__ = ("_number", "_session")
    session: "Session"

    def __init__(self, handle: "Any") -> None:
        if type(handle) is not int:
            raise ValueError("no handle")
        object.__setattr__(self, "_number", handle)

    def __call__(self, *args: "Any", **named: "Any") -> "Any":
        return Stand.session.ask("call", [self, *args], named)

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return Stand.session.ask("getattr", [self, name], {})

    def __setattr__(self, name: str, value: "Any") -> None:
        Stand.session.ask("setattr", [self, name, value], {})

    def __iter__(self) -> "Any":
        return iter(Stand.session.ask("items", [self], {}))

    def refuse(self, *_: "Any") -> "NoReturn":
        """A comparison of objects of the candidate's would be decided by the candidate."""
        raise Lost("objects of the answer's are not compared: compare what they hold")

    __hash__ = object.__hash__


def forward(what: str, *, swapped: bool = False) -> "Any":
    """A method that the candidate answers with a value of an exact type."""

    def method(self: "Any", *args: "Any") -> "Any":
        return Stand.session.ask(what, [*args, self] if swapped else [self, *args], {})

    return method


def among(what: str, *, swapped: bool = False) -> "Any":
    """As `forward`, for an operation of two objects of the candidate's; one with a value of the tests' is refused."""
    ask = forward(what, swapped=swapped)

    def method(self: "Any", other: "Any") -> "Any":
        if type(other) is not Stand:
            raise Lost("objects of the answer's are not computed with: use what they hold")
        return ask(self, other)

    return method


for each in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__"):
    setattr(Stand, each, Stand.refuse)
for each in ("len", "str", "repr"):
    setattr(Stand, f"__{each}__", forward(each))
for each in ("getitem", "setitem", "delitem", "neg", "abs", "invert"):
    setattr(Stand, f"__{each}__", forward(each))
setattr(Stand, "__contains__", among("contains"))  # noqa: B010 (as the others)
for each in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
):
    setattr(Stand, f"__{each.strip('_')}__", among(each))
    setattr(Stand, f"__r{each.strip('_')}__", among(each, swapped=True))


def module(name: str, session: Session) -> None:
    """Make `import NAME` give a module whose every attribute is a function of the candidate's."""
    Stand.session = session

    def named(attribute: str) -> "Any":
        if attribute.startswith("__"):
            raise AttributeError(attribute)

        def function(*args: "Any", **given: "Any") -> "Any":
            return session.ask("function", [attribute, *args], given)

        function.__name__ = function.__qualname__ = attribute
        return function

    made = types.ModuleType(name)
    made.__getattr__ = named  # type: ignore[method-assign]
    sys.modules[name] = made
