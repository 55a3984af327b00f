"""The way of values between the tests and the candidate: what has no exact type of data goes by its name or its handle.

Invariant: nothing of the tests' but data, and functions that the candidate may call and that run here, is given to the candidate;
an assertion that fails in such a function fails the test, whatever the candidate makes of it.
"""

# ruff: noqa: D102, TRY004, E402
TYPE_CHECKING = False
import builtins
import inspect

from services.verifier.inside import errors, wire
from services.verifier.inside.line import BAD, Lost
from services.verifier.inside.stand import Stand, exact, stand

if TYPE_CHECKING:
    from typing import Any

    from services.verifier.inside.remote import Session

STEPS = 1000
"""Most steps of a coroutine of the tests' that the candidate waits for."""


class Way:
    """Which objects here stand for which there."""

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.dict: dict[str, Any] = {}
        self.first: dict[str, Any] = self.dict  # as it was before a test changed it
        self.of: dict[int, str] = {}  # which name an object of ours stands for
        self.members: dict[int, tuple[str, str]] = {}
        self.functions: list[Any] = []  # of the tests', that the candidate may call
        self.raised: list[BaseException] = []  # by these

    def begin(self) -> None:
        """The process of the candidate's is new: it holds nothing."""
        self.functions.clear()
        self.raised.clear()

    def is_theirs(self, value: "Any") -> bool:
        return isinstance(value, BaseException) and "_handle" in value.__dict__

    def class_of(self, error: BaseException) -> "Any":
        kind = type(error)
        return kind if id(kind) in self.of else vars(builtins)[errors.nearest(error)]

    def tree(self, value: "Any") -> "list[Any]":
        """The tree of a value of the tests' that is no data. Raises Lost: it cannot be given."""
        if id(value) in self.of:
            return ["N", self.of[id(value)]]
        if id(value) in self.members:
            return ["M", *self.members[id(value)]]
        if isinstance(value, Stand):
            number = object.__getattribute__(value, "_number")
            return (
                ["N", number]
                if type(number) is str
                else self.held(number, object.__getattribute__(value, "_line"))
            )
        if self.is_theirs(value):
            return self.held(value.__dict__["_handle"], value.__dict__["_line"])
        name = getattr(value, "__name__", None)
        if type(name) is str and vars(builtins).get(name) is value:
            return ["B", name]
        if isinstance(value, BaseException) and vars(builtins).get(type(value).__name__) is type(value):
            return ["X", type(value).__name__, wire.tagged(value.args, self.tree)]
        if callable(value):
            self.functions.append(value)
            return ["F", len(self.functions) - 1, inspect.iscoroutinefunction(value)]
        raise Lost(f"a {type(value).__name__} cannot be given to the answer")

    def held(self, number: int, line: "Any") -> "list[Any]":
        if line is not self.session.line:
            raise Lost("an object of the answer's from an earlier test, whose process is gone")
        return ["O", number]

    def value(self, tree: "list[Any]") -> "Any":
        """What a tree of the candidate's with a capital tag stands for. Raises ValueError, LookupError or Lost."""
        tag = tree[0]
        if tag == "O":
            return stand(exact(tree[1], int), tree[2], self.session.line)
        if tag in ("N", "M"):
            found = self.first[tree[1]]
            if id(found) not in self.of:
                raise LookupError("no such name")
            return found if tag == "N" else type(found).__getitem__(found, exact(tree[2], str))
        if tag == "B":
            return self.built_in(tree[1])
        if tag == "L":
            return errors.of_the_library(tree[1], tree[2])
        if tag in ("X", "P"):
            return self.error(tree)
        raise ValueError("no such tag")

    def built_in(self, name: "Any") -> "Any":
        found = vars(builtins)[name]
        if not isinstance(found, type):
            raise LookupError("no type")
        return found

    def error(self, tree: "list[Any]") -> BaseException:
        """An exception of the candidate's; or one of the tests' own, which one of their functions raised."""
        if tree[0] == "P":
            own: BaseException = self.raised[exact(tree[1], int)]
            return own
        kinds = [self.value(kind) for kind in tree[1]]
        return errors.made(kinds, wire.plain(tree[2], self.value), tree[3], tree[4], self.session.line)

    def called(self, said: "list[Any]") -> bytes:
        """The candidate calls a function of the tests': the message with what became of it. Raises Lost."""
        try:
            _, number, *trees, rest = said
            function = self.functions[exact(number, int)]
            args, named = (wire.plain(tree, self.value) for tree in trees)
            self.session.printed(rest)
        except BAD as error:
            raise Lost("a call that is no data") from error
        try:
            value = function(*args, **named)
            if inspect.iscoroutine(value):
                value = finished(value)
            return wire.packed(["r", wire.tagged(value, self.tree)])
        except AssertionError as error:
            raise Lost("an assertion failed in a function that the answer called") from error
        except Exception as error:  # noqa: BLE001 (whatever the tests' function raises)
            self.raised.append(error)
            return wire.packed(["x", self.tree_of(error), len(self.raised) - 1])
        except Lost:
            raise
        except BaseException as error:
            raise Lost(f"{type(error).__name__} in a function that the answer called") from error

    def tree_of(self, error: Exception) -> "list[Any]":
        if self.is_theirs(error):
            return self.tree(error)
        try:
            return ["X", errors.nearest(error), wire.tagged(error.args, self.tree)]
        except BAD:
            return ["X", errors.nearest(error), ["t"]]


def finished(waiting: "Any") -> "Any":
    """What a coroutine of the tests' comes to, if it waits for nothing but its turn. Raises Lost."""
    for _ in range(STEPS):
        try:
            if waiting.send(None) is not None:
                break
        except StopIteration as end:
            return end.value
    raise Lost("a coroutine of the tests' waits for something")
