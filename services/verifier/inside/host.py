"""The process that runs the candidate of a suite, and answers the calls of the tests, which run in another.

Invariant: it was forked before any test was read, so that no test, and nothing expected, is in its memory; a test gets a child
of its own, and an answer is data.
"""

# ruff: noqa: BLE001, D103, E402, S102 (runs what is jailed, whatever that raises)
TYPE_CHECKING = False
import _socket
import builtins
import operator
import os

from services.verifier.inside import wire
from services.verifier.inside.kit import give_up, write_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FD_BYTES = 4
MOST = 1 << 20
"""Bytes of one message."""
ITEMS = 10_000
"""Most items that are taken from an iterator."""


def host(control: "_socket.socket", code: "Any", null: int) -> None:
    """Fork a child for each test: a message with the child's end of a socket comes in, its process id goes out."""
    child = 0
    while True:
        message, rights, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(FD_BYTES))
        if child:
            for kill in (os.killpg, os.kill):
                try:
                    kill(child, 9)
                except OSError:
                    continue
            os.waitpid(child, 0)
        if not message or not rights:
            return
        line = int.from_bytes(rights[0][2][:FD_BYTES], "little")
        leave = os._exit
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                control.close()
                for standard in (0, 1, 2):
                    os.dup2(null, standard)
                give_up()
                serve(line, code)
            finally:
                leave(0)
        os.close(line)
        control.sendall(child.to_bytes(FD_BYTES, "big"))


def take(line: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(line, count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def serve(line: int, code: "Any") -> None:
    """In the child: one answer for each call, until the other end closes."""
    scope: dict[str, Any] = {}
    kept: list[Any] = []

    def keep(value: "Any") -> int:
        kept.append(value)
        return len(kept) - 1

    while True:
        call = wire.parsed(take(line, int.from_bytes(take(line, 4), "big")))
        try:
            what, args, named = call[0], *(wire.plain(tree, kept.__getitem__) for tree in call[1:])
            if not scope:
                scope["__name__"] = "answer"
                exec(code, scope)
            value = done(what, args, named, scope)
        except BaseException as error:
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            answer = encoded("e", kinds, tuple(error.args), keep) or encoded("e", kinds, (), keep)
        else:
            answer = encoded("v", value, args, keep)
        # Of no kind: no test can take it for an exception that it expects.
        write_all(line, answer if 0 < len(answer) <= MOST else wire.packed(["e", [], ["t"]]))


def encoded(tag: str, first: "Any", second: "Any", keep: "Callable[[Any], int]") -> bytes:
    """One message; empty when something in it cannot be told, as when it is too deep."""
    try:
        head = wire.tagged(first, keep) if tag == "v" else first
        return wire.packed([tag, head, wire.tagged(second, keep)])
    except BaseException:
        return b""


def done(what: str, args: "list[Any]", named: "dict[str, Any]", scope: "dict[str, Any]") -> "Any":
    """The value of one operation: a function of the candidate's by name, or something with an object of its own."""
    if what == "function":
        return named_function(args.pop(0), scope)(*args, **named)
    if what == "call":
        return args[0](*args[1:], **named)
    if what == "items":
        found = []
        for item in args[0]:
            found.append(item)
            if len(found) > ITEMS:
                raise OverflowError("too many items")
        return found
    if what in ("getattr", "setattr", "len", "str", "repr", "format", "hash"):
        return getattr(builtins, what)(*args)
    return getattr(operator, what)(*args)


def named_function(name: str, scope: "dict[str, Any]") -> "Any":
    if name not in scope:
        raise AttributeError(f"the answer has no {name}")
    return scope[name]
