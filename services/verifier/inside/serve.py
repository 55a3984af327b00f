"""The process that holds the candidate, and does with it what the tests ask for.

Invariant: nothing expected is in its memory, and nothing that it says is more than data to the tests' process.
"""

# ruff: noqa: BLE001, PLR0911, D102, S102 (runs what is jailed, whatever that raises)
import builtins
import io
import operator
import os
import sys
import types
import warnings

from services.verifier.inside import wire
from services.verifier.inside.kept import MRO, NAME, Kept
from services.verifier.inside.kit import read_exactly, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 1 << 20
"""Bytes of one message."""
PRINTED = 1 << 17
"""Characters of what one call prints that the tests can read; the rest is dropped."""
WARNED = 100
BUILT_IN = frozenset(
    ("getattr", "setattr", "delattr", "len", "str", "repr", "format", "bool", "iter", "isinstance")
)


def load(code: "Any", module: str, path: str) -> "dict[str, Any]":
    """Run the candidate as the module that the tests import. Raises whatever it raises."""
    made = types.ModuleType(module)
    made.__file__ = f"/w/{path}"
    sys.modules[module] = made
    exec(code, made.__dict__)
    return made.__dict__


class Printed:
    """A standard stream of the candidate's, kept for the tests to read."""

    def __init__(self) -> None:
        self.raw = io.BytesIO()
        self.text = io.TextIOWrapper(self.raw, "utf-8", "backslashreplace", newline="\n", write_through=True)

    def taken(self) -> str:
        try:
            data = self.raw.getvalue()
            self.raw.seek(0)
            self.raw.truncate()
        except ValueError:  # closed by the candidate: nothing more can be printed
            return ""
        return data.decode("utf-8", "replace")[:PRINTED]


class Server:
    """Answers messages one after another; while a function of the tests' runs, those that this one sends."""

    def __init__(self, line: int, code: "Any", module: str, path: str) -> None:
        self.line, self.code, self.module, self.path = line, code, module, path
        self.kept: Kept | None = None
        self.warned: list[Any] = []
        self.out, self.err = Printed(), Printed()
        sys.stdout, sys.stderr = self.out.text, self.err.text
        warnings.simplefilter("always")
        warnings.showwarning = self.warn

    def warn(self, message: "Any", category: "Any", *_: "Any", **__: "Any") -> None:
        kinds = [NAME(kind) for kind in MRO(category) if vars(builtins).get(NAME(kind)) is kind]
        if len(self.warned) < WARNED and kinds:
            self.warned.append([kinds[0], str(message)[:1000]])

    def message(self) -> "Any":
        return wire.parsed(read_exactly(self.line, int.from_bytes(read_exactly(self.line, 4), "big")))

    def send(self, tree: "list[Any]") -> None:
        """One message; that there is none, if this one is too large or cannot be told."""
        try:
            whole = wire.packed(tree)
        except BaseException:
            whole = b""
        write_all(self.line, whole if 0 < len(whole) <= MOST else wire.packed(["t"]))

    def serve(self) -> None:
        """Until the other end closes."""
        while True:
            self.answer(self.message())

    def answer(self, call: "list[Any]") -> None:
        what, args, named, context = call
        try:
            self.place(context)
            if self.kept is None:
                self.kept = Kept(load(self.code, self.module, self.path))
                self.kept.back = self.function_of_the_tests
                self.rest()  # what it prints while it is loaded is read by no test
            kept = self.kept
            args, named = (wire.plain(tree, kept.found) for tree in (args, named))
        except BaseException:
            self.send(["l"])
            return
        try:
            value = self.done(what, args, named)
        except StopIteration as error:
            tree = ["s"] if what == "next" else ["e", kept.error(error)]
        except BaseException as error:
            tree = ["e", kept.error(error)]
        else:
            tree = self.told(value, args)
        self.send([*tree, self.echo(args), self.echo(named), self.rest()])

    def told(self, value: "Any", args: "list[Any]") -> "list[Any]":
        assert self.kept is not None  # noqa: S101 (for the type checker)
        same = [at for at, each in enumerate(args) if each is value and type(value) in (list, dict, set)]
        try:
            return ["a", same[0]] if same else ["v", wire.tagged(value, self.kept.told)]
        except BaseException:
            return ["t"]

    def echo(self, given: "Any") -> "Any":
        """What became of lists, dictionaries and sets among the arguments, which the candidate may have changed."""
        assert self.kept is not None  # noqa: S101 (for the type checker)
        places = given.items() if type(given) is dict else enumerate(given)
        try:
            return [
                [place, wire.tagged(each, self.kept.told)]
                for place, each in places
                if type(each) in (list, dict, set)
            ]
        except BaseException:
            return []

    def place(self, context: "dict[str, Any]") -> None:
        """Take over how the tests have set the stage: folder and environment."""
        if "cwd" in context:
            os.chdir(context["cwd"])
        for name, value in context.get("env", {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def rest(self) -> "list[Any]":
        """What else the tests may want to know: printed, warned."""
        warned, self.warned = self.warned, []
        return [self.out.taken(), self.err.taken(), warned]

    def done(self, what: str, args: "list[Any]", named: "dict[str, Any]") -> "Any":
        """The value of one operation with something of the candidate's."""
        assert self.kept is not None  # noqa: S101 (for the type checker)
        scope = self.kept.scope
        if what == "call":
            return args[0](*args[1:], **named)
        if what == "name":
            return scope[args[0]] if args[0] in scope else scope["__getattr__"](args[0])
        if what == "setname":
            scope[args[0]] = args[1]
            return None
        if what == "delname":
            del scope[args[0]]
            return None
        if what == "next":
            return next(args[0])
        if what in ("wait", "wait_for"):
            return self.waited(args[0](*args[1:], **named) if what == "wait" else args[0])
        if what == "enter":
            return type(args[0]).__enter__(args[0])
        if what == "exit":
            return bool(type(args[0]).__exit__(args[0], *(args[1:] or (None, None, None))))
        return getattr(builtins if what in BUILT_IN else operator, what)(*args)

    def waited(self, awaitable: "Any") -> "Any":
        import asyncio

        async def go() -> "Any":
            return await awaitable

        return asyncio.run(go())

    def function_of_the_tests(self, number: int, waits: bool) -> "Any":  # noqa: FBT001 (as it came)
        """A function that the candidate can call, which runs in the tests' process."""

        def function(*args: "Any", **named: "Any") -> "Any":
            return self.back(number, args, named)

        async def waiting(*args: "Any", **named: "Any") -> "Any":
            return self.back(number, args, named)

        return waiting if waits else function

    def back(self, number: int, args: "Any", named: "Any") -> "Any":
        kept = self.kept
        assert kept is not None  # noqa: S101 (for the type checker)
        trees = [wire.tagged(each, kept.told) for each in (list(args), named)]
        self.send(["f", number, *trees, self.rest()])
        while True:
            said = self.message()
            if said[0] == "r":
                return wire.plain(said[1], kept.found)
            if said[0] == "x":
                error = kept.found(said[1])
                if said[1][0] == "X":
                    error._of_the_tests = said[2]  # noqa: SLF001 (a mark on what comes back)
                raise error
            self.answer(said)
