"""Runs a pytest suite against a candidate that lives in another process, and reports each test through the report descriptor.

Invariant: no code of the candidate's is ever imported here, and nothing at all from where it can write: the folder of the
tests is made when nothing of the candidate's runs, and is gone before it runs again; and this process can neither be traced
nor be read.
"""

# ruff: noqa: BLE001, D103, E402, PTH102, PTH103, PTH118, PTH120, PTH123
TYPE_CHECKING = False
import _socket
import marshal
import os
import signal
import sys
import types

from services.verifier.inside.host import host, survey
from services.verifier.inside.kit import (
    JAILED_GID,
    JAILED_UID,
    REPORT,
    Clock,
    apart,
    frame,
    read_block,
    write_all,
)

if TYPE_CHECKING:
    from typing import Any

FOLDER = "/tmp/suite"  # noqa: S108 (in the jail, with a number that nobody has taken)
NUMBERS = 100
OPTIONS = (
    "-q", "--no-header", "--no-summary", "--tb=short", "--noconftest", "--assert=plain", "--import-mode=importlib",
    "--capture=sys", "-W", "ignore::pytest.PytestUnknownMarkWarning",
    *(f"-pno:{name}" for name in ("cacheprovider", "pastebin", "doctest", "stepwise", "faulthandler", "setuponly",
                                  "setupplan", "debugging", "threadexception", "unraisableexception")),
)  # fmt: skip
IGNORED = tuple(range(1, 32))
# Kinds of frames: B built, S it did not load, P the test passed, F it did not (payload: why), D what was waited.


class Plain(types.ModuleType):
    """Stands for a module that is imported and never used."""

    __path__: "list[str]" = []

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return Plain


def lay_out(tests: "dict[str, str]") -> str:
    """The folder of the tests, one that nobody made before. Raises OSError: the candidate left no room."""
    for number in range(NUMBERS):
        folder = f"{FOLDER}{number}"
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        break
    else:
        raise FileExistsError(FOLDER)
    for path, text in {**tests, "pytest.ini": "[pytest]\n"}.items():
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
    return folder


def handle(how: "Any", *but: int) -> None:
    for number in IGNORED:
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, *but):
            signal.signal(number, how)


def one_user() -> None:
    """Let the tests, and what they start, find one user, who owns what they make.

    This process has another real one, so that no answer signals it (kit.py, `apart`); what asks for that one, as a shell
    does, would find that it may not write.
    """
    import subprocess

    begin, access = subprocess.Popen.__init__, os.access

    def started(self: "Any", *given: "Any", **more: "Any") -> None:
        begin(self, *given, **{"user": JAILED_UID, "group": JAILED_GID, **more})

    def system(command: "Any") -> int:
        code = subprocess.call(["/bin/sh", "-c", command])
        return code << 8 if code >= 0 else -code

    def may(path: "Any", mode: int, **more: "Any") -> bool:
        return access(path, mode, **{**more, "effective_ids": True})

    subprocess.Popen.__init__ = started  # type: ignore[method-assign]
    os.system, os.access = system, may
    os.getuid, os.getgid = (lambda: JAILED_UID), (lambda: JAILED_GID)


def not_loaded(why: str) -> None:
    write_all(REPORT, frame(b"S", 0, why.encode("utf-8", "replace")))


def hosted(order: "dict[str, Any]", code: "Any", null: int) -> "_socket.socket":
    """Our end of a socket to the process that starts the candidate's."""
    ours, theirs = _socket.socketpair()
    leave = os._exit
    if os.fork() == 0:
        try:
            ours.close()
            os.close(REPORT)
            os.dup2(null, 0)  # the order ends here; taken, so that no descriptor received gets its number
            handle(signal.SIG_DFL, signal.SIGPIPE)
            host(theirs, order, code, null)
        finally:
            leave(0)
    theirs.close()
    return ours


def main() -> None:
    apart()
    handle(signal.SIG_IGN)
    order = marshal.loads(read_block(0))  # noqa: S302
    clock = Clock(order["total_s"], order["hard_s"])
    try:
        with open(f"/w/{order['path']}", "rb") as file:
            code = compile(file.read(), order["path"], "exec", dont_inherit=True)
    except BaseException as error:
        not_loaded(type(error).__name__)
        return
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    why, found = survey(order, code, null, clock, REPORT)
    if why:
        not_loaded(f"the answer did not load: {why}" if type(why) is str else "the answer told no data")
        write_all(REPORT, frame(b"D", 0, clock.last_words()))
        return
    ours = hosted(order, code, null)
    tests, ids = marshal.loads(read_block(0))  # noqa: S302
    try:
        folder = lay_out(tests)
        os.chdir("/tmp")  # noqa: S108
    except OSError as error:
        not_loaded(f"no room for the tests: {type(error).__name__}")
        return
    sys.path[:0] = ["/t/pytest.zip", folder]
    # pytest colours sources with it, which nobody sees; it is three times as large as pytest.
    for name in (
        "pygments",
        "pygments.formatters",
        "pygments.formatters.terminal",
        "pygments.lexer",
        "pygments.lexers",
        "pygments.lexers.diff",
        "pygments.lexers.python",
    ):
        sys.modules[name] = Plain(name)
    import socket
    import unittest  # noqa: F401 (what its names are, names.py asks)

    import pytest

    from services.verifier.inside.line import Lost
    from services.verifier.inside.names import Names
    from services.verifier.inside.records import Records
    from services.verifier.inside.remote import Session

    session = Session(socket.socket(fileno=ours.detach()), clock, order["case_s"], order["case_cpu_s"])
    try:
        Names(order["module"], found, session)
    except Lost as error:
        not_loaded(str(error))
        return
    records = Records(ids, session, folder)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    write_all(REPORT, frame(b"B", 0))
    one_user()
    chosen = sorted({os.path.join(folder, name.partition("::")[0]) for name in ids})
    pytest.main([*OPTIONS, "-c", f"{folder}/pytest.ini", "--rootdir", folder, *chosen], plugins=[records])
    records.missing()
    write_all(REPORT, frame(b"D", 0, clock.last_words()))


if __name__ == "__main__":
    main()
