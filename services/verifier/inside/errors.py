"""The candidate's exceptions in the process of the tests.

Invariant: each is of a class of this process that derives from what Python itself knows, so that `raises` and `except` decide;
what would end a loop of the tests' or the run of the tests is never raised here.
"""

# ruff: noqa: D102, D103, E402, S112
TYPE_CHECKING = False
import builtins
import importlib

from services.verifier.inside.kept import ERRORS
from services.verifier.inside.line import Lost
from services.verifier.inside.remote import hidden

if TYPE_CHECKING:
    from typing import Any

    from services.verifier.inside.remote import Session

NEVER = (KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration)
"""`all(map(f, xs))` would hold at once if a call ended the loop."""


class Remote(type):
    """A class of exceptions of the candidate's: made there, raised here."""

    session: "Session"

    def __call__(cls, *args: "Any", **named: "Any") -> "Any":
        return Remote.session.ask("call", [cls, *args], named)

    def __getattr__(cls, name: str) -> "Any":
        if hidden(name, Remote.session):
            raise AttributeError(name)
        return Remote.session.ask("getattr", [cls, name])


def words_of(self: BaseException) -> str:
    """What the candidate's own exception says, as it was when it came."""
    words: str = self.__dict__.get("_words", "")
    return words


def attribute(self: BaseException, name: str) -> "Any":
    if name.startswith("_") or "_words" not in self.__dict__:
        raise AttributeError(name)
    return Remote.session.ask("getattr", [self, name])


def error_class(name: str, words: "str | None", bases: "list[Any]", module: str) -> "Any":
    """A class below the nearest of its bases that are exceptions. Raises TypeError: there is none such."""
    kinds = [each for each in bases if isinstance(each, type) and issubclass(each, BaseException)]
    least = [one for one in kinds if not any(one is not other and issubclass(other, one) for other in kinds)]
    space = {
        "__doc__": words,
        "__module__": module,
        "__qualname__": name,
        "__str__": words_of,
        "__getattr__": attribute,
    }
    return type.__new__(Remote, name, tuple(dict.fromkeys(least)) or (BaseException,), space)


def of_the_library(module: "Any", name: "Any") -> "Any":
    """An exception of one of Python's modules. Raises LookupError."""
    if type(module) is not str or module not in ERRORS:
        raise LookupError("no such module")
    found = vars(importlib.import_module(module))[name]
    if not isinstance(found, type) or not issubclass(found, Exception) or found.__name__ != name:
        raise LookupError("no such exception")
    return found


def made(kinds: "list[Any]", args: "Any", words: "Any", number: "Any", line: "Any") -> BaseException:
    """The exception of the candidate's that is, in order of nearness, of these kinds. Raises Lost: no test can expect it."""
    found = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseException)]
    if any(issubclass(each, NEVER) for each in found):
        raise Lost("the answer raised what would end a loop of the tests")
    if not found or found[0] is BaseException:
        raise Lost("the answer raised what no test can expect")
    kind = found[0]
    if type(args) is not tuple or type(words) is not str or type(number) is not int:
        raise Lost("an answer that is no data")
    error: BaseException
    if type(kind) is Remote:
        error = fresh(kind, args)
        error.args = args
    else:
        error = whole(kind, args)
    error.__dict__.update(_words=words, _handle=number, _line=line)
    return error


def fresh(kind: "Any", args: "tuple[Any, ...]") -> "Any":
    for given in (args, ()):
        try:
            return kind.__new__(kind, *given)
        except Exception:  # noqa: BLE001 (some kinds want arguments of their own)
            continue
    raise Lost("the answer raised what cannot be made")


def whole(kind: "Any", args: "tuple[Any, ...]") -> "Any":
    """An exception of Python's own, with its arguments, or without if it does not take them."""
    for make in (lambda: kind(*args), kind):
        try:
            return make()
        except Exception:  # noqa: BLE001 (some kinds want arguments of their own)
            continue
    error = fresh(kind, ())
    error.args = args
    return error


def nearest(error: BaseException) -> str:
    """The name of the nearest class of Python's own."""
    name: str = next(
        kind.__name__ for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind
    )
    return name
