"""The module that the tests import: what the candidate said it holds, made of things of this process.

Invariant: none of it is code of the candidate's. Functions and classes here ask the candidate; constants are data of exact
types; exceptions are classes of this process, so that `raises` and `except` know them, and each exception is raised as the
nearest of them. What the candidate did not name does not exist.
"""

# ruff: noqa: D102, E402 (marks on what goes to the candidate)
TYPE_CHECKING = False
import builtins
import enum
import sys
import types

from services.verifier.inside import wire
from services.verifier.inside.errors import Remote, error_class
from services.verifier.inside.kept import MODULE
from services.verifier.inside.line import BAD, Lost
from services.verifier.inside.remote import hidden
from services.verifier.inside.stand import Stand, exact, stand
from services.verifier.inside.way import Way

if TYPE_CHECKING:
    from typing import Any

    from services.verifier.inside.remote import Session

TAKEN = ("test", "Test", "setup", "teardown", "setUp", "tearDown", "pytest", "unittest", "load_tests")
"""What the names of a suite begin with that mean something to its runner."""


class Class(type):
    """A class of the candidate's."""

    session: "Session"

    def __new__(cls, *_: "Any", **__: "Any") -> "Class":
        """What makes a class of the answer's goes by `type.__new__`; this is a test that derives from one."""
        raise Lost("a class of the answer's cannot be derived from in a test")

    def __call__(cls, *args: "Any", **named: "Any") -> "Any":
        return Class.session.ask("call", [cls, *args], named)

    def __instancecheck__(cls, value: "Any") -> bool:
        if not issubclass(type(value), Stand) and not Class.session.names.is_theirs(value):
            return False
        return bool(exact(Class.session.ask("isinstance", [value, cls]), bool))

    def __getattr__(cls, name: str) -> "Any":
        if hidden(name, Class.session):
            raise AttributeError(name)
        return Class.session.ask("getattr", [cls, name])

    def __setattr__(cls, name: str, value: "Any") -> None:
        Class.session.ask("setattr", [cls, name, value])

    def __delattr__(cls, name: str) -> None:
        Class.session.ask("delattr", [cls, name])


class Module(types.ModuleType):
    """Answers for the names of the candidate's, and for no others."""

    def __getattribute__(self, name: str) -> "Any":
        own = object.__getattribute__(self, "__dict__")
        names = own.get("_names")
        return (
            names.live(name) if names is not None and name in names.data else super().__getattribute__(name)
        )

    def __getattr__(self, name: str) -> "Any":
        names = self.__dict__["_names"]
        if name.startswith("__") or not names.dynamic:
            error = AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
            names.session.missed.append(error)
            raise error
        return names.session.ask("name", [name])

    def __setattr__(self, name: str, value: "Any") -> None:
        self.__dict__["_names"].patch(name, value)

    def __delattr__(self, name: str) -> None:
        raise Lost("a name of the answer's cannot be deleted")


class Names(Way):
    """What stands for each name, and the way of values to and from the candidate."""

    def __init__(self, module: str, found: "Any", session: "Session") -> None:
        super().__init__(session)
        Stand.session = Class.session = Remote.session = session
        session.names = self
        self.module = Module(module)
        self.dict = self.first = self.module.__dict__
        self.dict["_names"] = self
        self.data: set[str] = set()
        try:
            self.dynamic, told = (
                exact(found[0], bool),
                {exact(name, str): list(seen) for name, *seen in found[1]},
            )
            self.fill(told)
            self.first = dict(self.dict)
        except BAD as error:
            raise Lost("what the answer holds is no data") from error
        sys.modules[module] = self.module

    def fill(self, told: "dict[str, list[Any]]") -> None:
        for name in told:
            if not name.isidentifier() or name == "_names" or (name.startswith("__") and name not in MODULE):
                raise ValueError("no name")
        for name, seen in told.items():
            if seen[0] in ("f", "k", "x", "m"):
                self.named(name, told)
        for name, seen in told.items():
            if seen[0] == "a":
                self.dict[name] = self.dict[exact(seen[1], str)]
            elif seen[0] == "o":
                self.dict[name] = stand(name, seen[1], None)
            elif seen[0] == "d":
                self.dict[name] = wire.plain(seen[1], self.value)
                self.data.add(name)
        public: Any = self.dict.get("__all__")
        if type(public) not in (list, tuple):
            public = [name for name in told if not name.startswith("_")]
        # A star takes nothing that the tests or their runner mean otherwise.
        taken = {*vars(builtins), *vars(sys.modules["pytest"]), *vars(sys.modules["unittest"]), *sys.modules}
        self.data.discard("__all__")
        self.dict["__all__"] = [
            each
            for each in public
            if type(each) is str and each in told and each not in taken and not each.startswith(TAKEN)
        ]

    def named(self, name: str, told: "dict[str, list[Any]]") -> "Any":
        """The function or class of that name. Raises ValueError, LookupError or TypeError: there can be none."""
        if name in self.dict:
            return self.dict[name]
        kind, words, *more = told[name]
        if words is not None and type(words) is not str:
            raise ValueError("no words")
        if kind == "f":
            made = self.function(name, exact(more[0], bool))
            made.__doc__ = words
        elif kind == "m":
            made = self.enumeration(name, *more)
        elif kind in ("k", "x"):
            self.dict[name] = None  # what is its own base has none
            bases = [each for tree in more[0] for each in self.base(tree, told)]
            if kind == "x":
                made = error_class(name, words, bases, self.module.__name__)
            else:
                made = self.plain_class(name, words, [each for each in bases if type(each) is Class])
        else:
            raise ValueError("of no kind")
        self.dict[name] = made
        self.of[id(made)] = name
        return made

    def base(self, tree: "Any", told: "dict[str, list[Any]]") -> "list[Any]":
        found = self.named(tree[1], told) if tree[0] == "N" and told[tree[1]][0] in ("k", "x") else None
        return [found] if found is not None else [self.value(tree)] if tree[0] in ("B", "L") else []

    def plain_class(self, name: str, words: "str | None", bases: "list[Any]") -> "Any":
        least = [
            one for one in bases if not any(one is not other and issubclass(other, one) for other in bases)
        ]
        space = {"__doc__": words, "__module__": self.module.__name__, "__qualname__": name}
        made = type.__new__(Class, name, (), space)
        if least:
            made = type.__new__(Class, name, tuple(least), space)
        return made

    def function(self, name: str, waits: bool) -> "Any":  # noqa: FBT001 (as told)
        ask = self.session.ask

        def function(*args: "Any", **named: "Any") -> "Any":
            return ask("call", [function, *args], named)

        async def waiting(*args: "Any", **named: "Any") -> "Any":
            return ask("wait", [waiting, *args], named)

        made = waiting if waits else function
        made.__name__ = made.__qualname__ = name
        made.__module__ = self.module.__name__
        return made

    def enumeration(self, name: str, bases: "Any", told: "Any") -> "Any":
        """A real one; names that mean the same member are none, as the answer may have made all of them one."""
        values = {exact(each, str): (own, wire.plain(tree, self.value)) for each, own, tree in told}
        twice = {own for each, (own, _) in values.items() if own != each}
        single = [(each, value) for each, (own, value) in values.items() if own == each and own not in twice]
        kind: Any = (
            enum.IntEnum if ["B", "int"] in bases else enum.StrEnum if ["B", "str"] in bases else enum.Enum
        )
        made = kind(name, single, module=self.module.__name__)
        if len(list(made)) != len(single):
            raise ValueError("members that are the same")
        for each in made:
            self.members[id(each)] = (name, each.name)
        return made

    def live(self, name: str) -> "Any":
        """A constant as it is now, once the candidate runs; until then as it was when it was loaded."""
        if self.session.open and self.session.line is not None:
            return self.session.ask("name", [name])
        return self.dict[name]

    def patch(self, name: str, value: "Any") -> None:
        """Set a name of the candidate's, in each of its processes from here on, or set it back."""
        if self.session.line is not None:
            self.session.ask("setname", [name, value])
        same = name in self.first and value is self.first[name]
        if name in self.data and not same:
            same = wire.tagged(value, self.tree) == wire.tagged(self.first[name], self.tree)
        if same:
            self.session.patched.pop(name, None)
        else:
            self.session.patched[name] = value
        self.dict[name] = value
