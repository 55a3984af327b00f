"""A command that another process runs for a person ends when that process or the person says so, and tidies up.

Invariant: a signal to end becomes one exception in the main thread (further ones are ignored while it tidies up), and who
was started for a process that is gone does not begin.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

PARENT = "TEMPER_PARENT"
"""Names the process id of who started the command and ends it by ending."""
SIGNALLED = 128
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
PR_SET_PDEATHSIG = 1


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run `command` on this terminal; its exit status, or 128 and the number of the signal that ended it.

    Signals to end that come to this process are passed on (from the main thread, which alone gets them), and one that is
    killed takes the command along if that has called `follow`. Raises OSError: it cannot be started.
    """
    given = os.environ if environment is None else environment
    started: list[subprocess.Popen[bytes]] = []
    with _passed_on(started):
        started.append(subprocess.Popen(command, env={**given, PARENT: str(os.getpid())}))
        code = started[0].wait()
    return code if code >= 0 else SIGNALLED - code


@contextmanager
def _passed_on(started: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Within, signals to end go to the process in `started`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, _: FrameType | None) -> None:
        if not started:  # it is just being started
            raise SystemExit(SIGNALLED + number)
        started[0].send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow() -> None:
    """Turn signals to end into SystemExit, and be sent one when the process that PARENT names ends.

    Raises SystemExit: it has ended already.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, _end)
    parent = os.environ.pop(PARENT, "")
    if not parent:
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if str(os.getppid()) != parent:
        raise SystemExit(SIGNALLED + signal.SIGTERM)


def _end(number: int, _: FrameType | None) -> None:
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(SIGNALLED + number)
