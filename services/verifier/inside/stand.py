"""An object that stays with the candidate, as the tests see it.

Invariant: no method of the candidate's decides an assertion about a value of the tests': a stand-in refuses to be compared,
and to be computed with a value of the tests', since each would see what is expected (`f(x) - 6`, `6 in f(x)`) and could answer
so that it holds. What it says of itself (length, truth, text, items) is said before any of it is compared.
"""

# ruff: noqa: D103, E402
TYPE_CHECKING = False
from services.verifier.inside.line import Lost
from services.verifier.inside.remote import hidden

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from services.verifier.inside.line import Line
    from services.verifier.inside.remote import Session


class Stand:
    """One object: by its handle in the process of one line, or by its name in whichever process is asked."""

    __slots__ = ("_line", "_number")
    session: "Session"
    special: tuple[str, ...] = ()

    def __init__(self, number: "int | str", line: "Line | None") -> None:
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_line", line)

    def __getattr__(self, name: str) -> "Any":
        if hidden(name, Stand.session):
            raise AttributeError(name)
        return Stand.session.ask("getattr", [self, name])

    def __setattr__(self, name: str, value: "Any") -> None:
        Stand.session.ask("setattr", [self, name, value])

    def __delattr__(self, name: str) -> None:
        Stand.session.ask("delattr", [self, name])

    def __bool__(self) -> bool:
        if not {"__bool__", "__len__"} & set(type(self).special):
            return True
        return bool(exact(Stand.session.ask("bool", [self]), bool))

    def __str__(self) -> str:
        return str(exact(Stand.session.ask("str", [self]), str))

    def __repr__(self) -> str:
        return str(exact(Stand.session.ask("repr", [self]), str))

    def __format__(self, how: str) -> str:
        return str(exact(Stand.session.ask("format", [self, how]), str))

    def refuse(self, *_: "Any") -> "NoReturn":
        """A comparison of objects of the candidate's would be decided by the candidate."""
        raise Lost("objects of the answer's are not compared: compare what they hold")

    __hash__ = object.__hash__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = refuse


def exact(value: "Any", kind: type) -> "Any":
    """The value, which must be of exactly that type. Raises Lost."""
    if type(value) is not kind:
        raise Lost(f"the answer gave no {kind.__name__}")
    return value


def among(what: str, *, swapped: bool = False) -> "Any":
    """An operation of two objects of the candidate's; one with a value of the tests' is refused."""

    def method(self: "Any", other: "Any") -> "Any":
        if not isinstance(other, Stand):
            raise Lost("objects of the answer's are not computed with: use what they hold")
        return Stand.session.ask(what, [other, self] if swapped else [self, other])

    return method


def asked(what: str) -> "Any":
    def method(self: "Any", *args: "Any", **named: "Any") -> "Any":
        return Stand.session.ask(what, [self, *args], named)

    return method


def length(self: Stand) -> int:
    found: int = exact(Stand.session.ask("len", [self]), int)
    if found < 0:
        raise Lost("the answer gave no length")
    return found


def iterated(self: Stand) -> "Any":
    """What `iter` gives; a stand-in that can be asked for the next item, or data."""
    return iter(Stand.session.ask("iter", [self]))


def itself(self: Stand) -> Stand:
    return self


def leave(self: Stand, kind: "Any", error: "Any", _: "Any") -> bool:
    """The end of a `with` block. An exception leaves it: an answer that swallows it would skip assertions of the tests'."""
    if kind is None:
        Stand.session.ask("exit", [self])
    elif Stand.session.names.is_theirs(error):
        if Stand.session.ask("exit", [self, Stand.session.names.class_of(error), error, None]):
            raise Lost("a context of the answer's swallowed an exception")
    else:
        # What the tests' own exception says is nothing for the candidate; it may close what it has open.
        Stand.session.ask("exit", [self, RuntimeError, RuntimeError(), None])
    return False


def awaited(self: Stand) -> "Any":
    """One step: the candidate waits for it in its own process."""
    yield from ()  # a generator, as `await` wants
    return Stand.session.ask("wait_for", [self])


OPTIONAL = {
    "__call__": {"__call__": asked("call")},
    "__len__": {"__len__": length},
    "__iter__": {"__iter__": iterated},
    "__next__": {"__iter__": itself, "__next__": asked("next")},
    "__enter__": {"__enter__": asked("enter"), "__exit__": leave},
    "__await__": {"__await__": awaited},
    "__contains__": {"__contains__": among("contains")},
    **{f"__{name}__": {f"__{name}__": asked(name)} for name in ("getitem", "setitem", "delitem")},
}
KINDS: "dict[tuple[str, ...], type[Stand]]" = {}
for each in ("neg", "abs", "invert"):
    setattr(Stand, f"__{each}__", asked(each))
for each in [
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
]:
    setattr(Stand, f"__{each.strip('_')}__", among(each))
    setattr(Stand, f"__r{each.strip('_')}__", among(each, swapped=True))


def stand(number: "int | str", special: "Any", line: "Line | None") -> Stand:
    """A stand-in that can do what its object can. Raises ValueError: not the names of methods."""
    if type(special) is not list or not all(
        type(name) is str and name in (*OPTIONAL, "__bool__") for name in special
    ):
        raise ValueError("no methods")
    wanted = tuple(name for name in (*OPTIONAL, "__bool__") if name in special)
    if wanted not in KINDS:
        made: dict[str, Any] = {"__slots__": (), "special": wanted}
        for name in wanted:
            made.update(OPTIONAL.get(name, {}))
        KINDS[wanted] = type("Stand", (Stand,), made)
    return KINDS[wanted](number, line)
