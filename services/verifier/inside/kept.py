"""What stays with the candidate, in its own process: its names, classes and objects, and how the tests are told of them.

Invariant: nothing here decides anything. It runs where the candidate does, which could say all of this as it likes; what the
tests make of it is the other end's affair (names.py, stand.py).

Trees that are no plain data (capital tags): N a name of the module, B a name of Python's own, L (module, name) an exception of
the library, O (handle, special methods) an object, X (kinds, arguments, words, handle) an exception, M (class, name) a member
of an enumeration, P (number) an exception of the tests' own, F (number, whether it is awaited) a function of theirs.
"""

# ruff: noqa: ARG001, D102, D103 (runs what is jailed, whatever that raises)
import builtins
import sys

from services.verifier.inside import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SPECIAL = tuple(
    f"__{name}__"
    for name in [
        "call",
        "iter",
        "next",
        "len",
        "bool",
        "enter",
        "await",
        "getitem",
        "setitem",
        "delitem",
        "contains",
    ]
)
ERRORS = (
    "json.decoder",
    "decimal",
    "dataclasses",
    "queue",
    "_queue",
    "re",
    "struct",
    "binascii",
    "csv",
    "_csv",
)
"""Modules of the library whose exceptions an answer may raise."""
COROUTINE = 0x80  # inspect.CO_COROUTINE, which would cost an import
MODULE = {"__version__", "__author__", "__all__"}
SHORT = 2000
"""Characters of an exception's words, or of what a class says of itself."""
MRO, NAME, PLACE = (type.__dict__[name].__get__ for name in ("__mro__", "__name__", "__module__"))


def is_class(value: "Any") -> bool:
    return type in MRO(type(value))


class Kept:
    """The candidate's names after it was loaded, and its objects that the tests have seen."""

    def __init__(self, scope: "dict[str, Any]") -> None:
        self.scope = scope
        self.names = {n: v for n, v in scope.items() if type(n) is str and (n[:2] != "__" or n in MODULE)}
        self.own: dict[int, str] = {}
        for name, value in self.names.items():
            if (is_class(value) and outside(value) is None) or type(value) is type(is_class):
                title = NAME(value) if is_class(value) else value.__name__
                if id(value) not in self.own or title == name:
                    self.own[id(value)] = name
        self.objects: list[Any] = []
        self.back: Callable[[int, bool], Any] | None = None  # makes a function of the tests' one to call

    def told(self, value: "Any") -> "Any":
        """The tree of what is no plain data."""
        found = self.reference(value)
        if found is not None:
            return found
        kind = type(value)
        if id(kind) in self.own and members(kind) is not None:
            return ["M", self.own[id(kind)], value._name_]
        if BaseException in MRO(kind):
            return self.error(value)
        held = [vars(each) for each in MRO(kind) if each is not object]
        special = [name for name in SPECIAL if any(each.get(name) is not None for each in held)]
        return ["O", self.number(value), special]

    def number(self, value: "Any") -> int:
        self.objects.append(value)
        return len(self.objects) - 1

    def reference(self, value: "Any") -> "Any":
        """How a class or a function is named to the tests; None for one that has no name there, and all else."""
        if id(value) in self.own:
            return ["N", self.own[id(value)]]
        return outside(value) if is_class(value) else None

    def error(self, error: BaseException) -> "list[Any]":
        """An exception: what it is, in order, its arguments, words and handle; or that it was one of the tests' own."""
        theirs = error.__dict__.get("_of_the_tests")
        if type(theirs) is int:
            return ["P", theirs]
        kinds = [found for found in map(self.reference, MRO(type(error))) if found is not None]
        args = error.args
        if isinstance(error, OSError) and len(args) == 2 and type(error.filename) is str:  # noqa: PLR2004 (number, words)
            args = (*args, error.filename)
        try:
            told = wire.tagged(tuple(args), self.told)
        except BaseException:  # noqa: BLE001 (what cannot be told is left out)
            told = ["t"]
        try:
            words = str(str(error))[:SHORT]
        except BaseException:  # noqa: BLE001 (as above)
            words = ""
        return ["X", kinds, told, words, self.number(error)]

    def found(self, tree: "list[Any]") -> "Any":
        """The value of a tree of the tests'. Raises LookupError: the answer has no such name, though it once had."""
        tag = tree[0]
        if tag == "O":
            return self.objects[tree[1]]
        if tag == "N":
            return self.names[tree[1]]
        if tag == "B":
            return vars(builtins)[tree[1]]
        if tag == "M":
            return self.names[tree[1]][tree[2]]
        if tag == "X":
            return vars(builtins)[tree[1]](*wire.plain(tree[2], self.found))
        if tag == "F" and self.back is not None:
            return self.back(tree[1], tree[2])
        raise LookupError(tag)

    def survey(self) -> "list[Any]":
        """[whether names are made when asked for, [each name and what stands behind it]].

        That is: a the same as another name, f a function, k a class, x an exception, m an enumeration, d data, o an object.
        """
        return [
            "__getattr__" in self.scope,
            [[name, *self.seen(name, value)] for name, value in self.names.items()],
        ]

    def seen(self, name: str, value: "Any") -> "list[Any]":
        known = self.own.get(id(value), name)
        if known != name:
            return ["a", known]
        if type(value) is type(is_class):
            return ["f", words(value.__doc__), bool(value.__code__.co_flags & COROUTINE)]
        if is_class(value) and outside(value) is None:
            found = [self.reference(each) for each in MRO(value)[1:]]
            about = [words(vars(value).get("__doc__")), [each for each in found if each is not None]]
            many = members(value)
            if many is not None:
                return ["m", *about, many]
            return ["x" if BaseException in MRO(value) else "k", *about]
        try:
            return ["d", wire.tagged(value, self.plainly)]
        except (LookupError, ValueError):
            held = [vars(each) for each in MRO(type(value)) if each is not object]
            return ["o", [each for each in SPECIAL if any(one.get(each) is not None for one in held)]]

    def plainly(self, value: "Any") -> "Any":
        """The tree of a value that needs no object: a class, a function or a member of an enumeration."""
        made = self.reference(value)
        if made is None:
            made = self.told(value)
        if made[0] not in ("N", "B", "L", "M"):
            raise LookupError("an object")
        return made


def outside(kind: "Any") -> "Any":
    """How a class that is not the answer's is named to the tests, if it is."""
    name, place = NAME(kind), PLACE(kind)
    if vars(builtins).get(name) is kind:
        return ["B", name]
    if type(place) is str and place in ERRORS and BaseException in MRO(kind):
        return ["L", place, name] if vars(sys.modules.get(place, builtins)).get(name) is kind else None
    return None


def words(value: "Any") -> "str | None":
    return value[:SHORT] if type(value) is str else None


def members(kind: "Any") -> "Any":
    """[name, canonical name, value] of an enumeration of plain data; None for any other class."""
    enum = sys.modules.get("enum")
    if enum is None or enum.Enum not in MRO(kind) or enum.Flag in MRO(kind):
        return None
    try:
        pairs = [[name, each._name_, each._value_] for name, each in kind.__members__.items()]
        return [[name, own, wire.tagged(value, refuse)] for name, own, value in pairs] or None
    except (LookupError, ValueError, AttributeError):
        return None


def refuse(value: "Any") -> "Any":
    raise LookupError("no plain data")
