"""The processes that run the candidate of a suite: one that tells what it holds, and those that answer the calls of the tests.

Invariant: they were forked before any test was read, so that no test, and nothing expected, is in their memory; the first is
gone, with all that it started, before the tests are laid out.
"""

# ruff: noqa: BLE001, E402 (runs what is jailed, whatever that raises)
TYPE_CHECKING = False
import _socket
import os

from services.verifier.inside import wire
from services.verifier.inside.kept import MRO, NAME, Kept
from services.verifier.inside.kit import Clock, Watch, gather, give_up, write_all
from services.verifier.inside.serve import Server, load

if TYPE_CHECKING:
    from typing import Any

FD_BYTES = 4
SURVEY = 1 << 20
"""Bytes of all that is told of the names."""


def alone(null: int) -> None:
    """In a child, before the candidate: a group of its own, no standard streams, no way back to the report."""
    os.setpgid(0, 0)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    give_up()


def survey(order: "dict[str, Any]", code: "Any", null: int, clock: Clock, mine: int) -> "tuple[str, Any]":
    """(why the candidate did not load, what it holds: kept.py, `survey`). Nothing of its process is left."""
    answer, theirs = os.pipe()
    os.set_blocking(answer, False)
    leave = os._exit
    pid = os.fork()
    if pid == 0:
        try:
            for descriptor in (mine, answer):
                os.close(descriptor)
            alone(null)
            write_all(theirs, told(code, order, theirs))
        finally:
            leave(0)
    os.close(theirs)
    watch = Watch(clock, pid, order["case_s"], order["case_cpu_s"])
    message: list[bytes] = []

    def take(data: bytes) -> "bytes | None":
        size = int.from_bytes(data[:4], "big") if len(data) >= 4 else 0  # noqa: PLR2004 (its length)
        if size > SURVEY or len(data) > SURVEY + 4:
            return b"L"
        if len(data) < 4 + max(size, 1):
            return None
        message.append(data[4 : 4 + size])
        return b"V"

    kind = gather(answer, watch, take)
    os.close(answer)
    watch.end()
    if kind != b"V":
        return {b"T": "ran out of time", b"W": "ran out of time", b"L": "too many names"}.get(
            kind, "died"
        ), None
    try:
        why, names = wire.parsed(message[0])
    except (ValueError, TypeError, RecursionError):
        return "told no data", None
    return (why[:80], None) if type(why) is not str or why else ("", names)


def told(code: "Any", order: "dict[str, Any]", line: int) -> bytes:
    """In the child: the message for `survey`."""
    server = Server(line, code, order["module"], order["path"])
    try:
        server.place({"cwd": "/tmp"})  # noqa: S108 (as for the tests)
        return wire.packed(["", Kept(load(code, order["module"], order["path"])).survey()])
    except BaseException as error:
        return wire.packed([NAME(MRO(type(error))[0]), None])


def host(control: "_socket.socket", order: "dict[str, Any]", code: "Any", null: int) -> None:
    """Fork a child when asked: a message with the child's end of a socket comes in, its process id goes out."""
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
                control.close()
                alone(null)
                Server(line, code, order["module"], order["path"]).serve()
            finally:
                leave(0)
        os.close(line)
        control.sendall(child.to_bytes(FD_BYTES, "big"))
