"""Runs a pytest suite against a candidate that lives in another process, and reports each test through the report descriptor.

Invariant: no code of the candidate's is ever imported here, and nothing at all from where it can write; the files of the
tests are gone before it first runs;
and this process can neither be traced nor be read. A test passes if set-up, call and tear-down passed, nothing else.
"""

# ruff: noqa: BLE001, D102, D103, E402, PTH103, PTH118, PTH120, PTH123
TYPE_CHECKING = False
import _socket
import marshal
import os
import shutil
import signal
import sys
import types

from services.verifier.inside.host import host
from services.verifier.inside.kit import REPORT, Clock, apart, frame, read_block, write_all

if TYPE_CHECKING:
    from typing import Any

FOLDER = "/tmp/suite"  # noqa: S108 (in the jail, and gone before the candidate runs)
OPTIONS = (
    "-q", "--no-header", "--no-summary", "--tb=no", "--noconftest", "--assert=plain", "--import-mode=importlib",
    "-c", f"{FOLDER}/pytest.ini", "--rootdir", FOLDER, "-W", "ignore",
    *(f"-pno:{name}" for name in ("cacheprovider", "junitxml", "pastebin", "doctest", "stepwise", "faulthandler",
                                  "logging", "setuponly", "setupplan", "debugging", "threadexception",
                                  "unraisableexception", "warnings", "capture")),
)  # fmt: skip
TRUSTED = ("/t/", "/usr/")
"""Where the candidate cannot write, and modules may be imported from while it runs."""
IGNORED = tuple(range(1, 32))
# Kinds of frames: B built, S syntax error, P the test passed, F it did not (payload: why), D what was waited.


class Records:
    """The plugin that says what became of each expected test."""

    def __init__(self, ids: "list[str]", session: "Any", clock: Clock) -> None:
        self.place = {name: place for place, name in enumerate(ids)}
        self.session, self.clock = session, clock
        self.phases: dict[str, str] = {}

    def pytest_collection_finish(self) -> None:
        """The candidate runs from here on, and could make the folder anew: nothing is imported from there any more."""
        shutil.rmtree(FOLDER)
        sys.path[:] = [place for place in sys.path if f"{place}/".startswith(TRUSTED)]
        sys.path_importer_cache.clear()

    def pytest_runtest_logstart(self, nodeid: str) -> None:  # noqa: ARG002 (pytest gives it)
        self.phases = {}
        self.session.begin()

    def pytest_runtest_logreport(self, report: "Any") -> None:
        said = "marked as failing" if hasattr(report, "wasxfail") else report.outcome
        self.phases[report.when] = "" if said == "passed" else said

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.session.end()
        if nodeid not in self.place:
            return
        bad = next((f"{when} {said}" for when, said in self.phases.items() if said), "")
        if not bad and set(self.phases) != {"setup", "call", "teardown"}:
            bad = "did not run"
        if not bad and self.session.lost:
            bad = "the answer once gave no answer"
        kind = b"F" if bad else b"P"
        write_all(REPORT, frame(kind, self.place[nodeid], bad.encode()[:80]))


class Plain(types.ModuleType):
    """Stands for a module that is imported and never used."""

    __path__: "list[str]" = []

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)
        return Plain


def lay_out(tests: "dict[str, str]") -> None:
    for path, text in {**tests, "pytest.ini": "[pytest]\n"}.items():
        place = os.path.join(FOLDER, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)


def main() -> None:
    apart()
    for number in IGNORED:
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
    order = marshal.loads(read_block(0))  # noqa: S302
    clock = Clock(order["total_s"], order["hard_s"])
    try:
        with open(f"/w/{order['path']}", "rb") as file:
            code = compile(file.read(), order["path"], "exec", dont_inherit=True)
    except BaseException as error:
        write_all(REPORT, frame(b"S", 0, type(error).__name__.encode()))
        return
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    ours, theirs = _socket.socketpair()
    leave = os._exit
    if os.fork() == 0:
        try:
            ours.close()
            os.close(REPORT)
            os.dup2(null, 0)  # the order ends here; taken, so that no descriptor received gets its number
            for number in IGNORED:
                if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE):
                    signal.signal(number, signal.SIG_DFL)
            host(theirs, code, null)
        finally:
            leave(0)
    theirs.close()
    tests, ids = marshal.loads(read_block(0))  # noqa: S302
    lay_out(tests)
    sys.path[:0] = ["/t/pytest.zip", FOLDER]
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

    import pytest

    from services.verifier.inside import remote

    session = remote.Session(socket.socket(fileno=ours.detach()), clock, order["case_s"], order["case_cpu_s"])
    remote.module(order["module"], session)
    records = Records(ids, session, clock)
    os.chdir("/tmp")  # noqa: S108
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    write_all(REPORT, frame(b"B", 0))
    chosen = sorted({os.path.join(FOLDER, name.partition("::")[0]) for name in ids})
    pytest.main([*OPTIONS, *chosen], plugins=[records])
    write_all(REPORT, frame(b"D", 0, clock.last_words()))


if __name__ == "__main__":
    main()
