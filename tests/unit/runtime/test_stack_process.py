from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from services.runtime.stack import Process, StackError

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = (
    "import signal, threading, os\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', os.getpid(), flush=True)\n"
    "threading.Event().wait(30)\n"
)


def _start(tmp_path: Path, code: str, *, grace_s: float = 5.0) -> Process:
    return Process.start("it", [sys.executable, "-IS", "-c", code], log=tmp_path / "it.log", grace_s=grace_s)


def _wait_dead(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


def _wait_log(process: Process, text: str) -> None:
    end = time.monotonic() + 10
    while text not in process.output():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_exit_status_and_log(tmp_path: Path) -> None:
    with _start(tmp_path, "print('hello'); raise SystemExit(7)") as process:
        assert process.wait(10) == 7
        assert process.output() == "hello\n"


def test_stop_is_sigterm_first_and_repeatable(tmp_path: Path) -> None:
    process = _start(tmp_path, "import threading; threading.Event().wait(30)")
    assert process.poll() is None
    assert process.stop() == 128 + signal.SIGTERM
    assert process.stop() == 128 + signal.SIGTERM


def test_stop_ends_what_ignores_sigterm_and_what_it_left_behind(tmp_path: Path) -> None:
    code = f"import os\nif os.fork() == 0:\n    os.fork()\n{STUBBORN}"
    process = _start(tmp_path, code, grace_s=0.2)
    _wait_log(process, "ready")
    end = time.monotonic() + 10
    while len(pids := [int(word) for word in process.output().split() if word.isdigit()]) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert process.stop() == 128 + signal.SIGKILL
    assert all(_wait_dead(pid) for pid in pids)


def test_killed_command_is_reported(tmp_path: Path) -> None:
    process = _start(tmp_path, "import threading; threading.Event().wait(30)")
    process.signal(signal.SIGKILL)
    assert process.wait(10) == 128 + signal.SIGKILL


def test_killed_keeper_takes_its_command_along(tmp_path: Path) -> None:
    process = _start(tmp_path, STUBBORN)
    _wait_log(process, "ready")
    process.keeper.kill()
    assert process.keeper.wait(10) == -signal.SIGKILL
    assert _wait_dead(process.pid)


def test_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"it: cannot run .*absent: No such file"):
        Process.start("it", [str(tmp_path / "absent")], log=tmp_path / "log")
