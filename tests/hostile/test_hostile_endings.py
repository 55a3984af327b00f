"""A program's end is reported as it was: never guessed from a shell-style code, never forged from inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.verifier.jail import Limits, Outcome

pytestmark = pytest.mark.hostile
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
CALM = Limits(wall_s=10.0, cpu_s=5.0)

INT80 = """
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes.fromhex("b814000000cd80c3"))
a = ctypes.addressof(ctypes.c_char.from_buffer(m))
print("HOLE", ctypes.CFUNCTYPE(ctypes.c_int)(a)())
"""
FORGER = """
import os
for fd in range(3, 999):
    try:
        os.write(fd, b"exit 0 1\\n")
        print("HOLE", fd)
    except OSError:
        pass
raise SystemExit(7)
"""
STARVE_INIT = """
import os, resource
calls = [lambda what=what: resource.prlimit(1, what, (0, 0)) for what in range(16)]
calls += [
    lambda: os.sched_setaffinity(1, {0}),
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.kill(1, 19),
    lambda: os.kill(1, 9),
]
for call in calls:
    try:
        call()
        print("HOLE")
    except OSError:
        pass
raise SystemExit(7)
"""


@pytest.mark.parametrize("code", [1, 2, 109, 124, 126, 127, 128, 134, 137, 139, 255])
def test_exit_code(attack: Callable[..., Outcome], code: int) -> None:
    outcome = attack(("/bin/sh", "-c", f"exit {code}"), CALM)
    assert (outcome.cause, outcome.exit_code, outcome.signal) == ("exit", code, None)


@pytest.mark.parametrize("number", [3, 6, 9, 11, 14, 15, 24, 31, 34])
def test_signal(attack: Callable[..., Outcome], number: int) -> None:
    outcome = attack((*PYTHON, f"import os; os.kill(os.getpid(), {number})"), CALM)
    assert (outcome.cause, outcome.exit_code, outcome.signal) == ("signal", None, number)


def test_a_call_by_the_old_gate_is_killed(attack: Callable[..., Outcome]) -> None:
    outcome = attack((*PYTHON, INT80), CALM)
    assert (outcome.cause, outcome.signal) == ("signal", 31)
    assert b"HOLE" not in outcome.stdout


def test_the_init_cannot_be_starved_stopped_or_killed(attack: Callable[..., Outcome]) -> None:
    """The init has a user id of its own, so the program may neither limit nor signal it."""
    outcome = attack(("/usr/bin/python3", "-c", STARVE_INIT), CALM)
    assert (outcome.cause, outcome.exit_code, outcome.stdout) == ("exit", 7, b""), outcome


def test_status_cannot_be_forged(attack: Callable[..., Outcome]) -> None:
    outcome = attack((*PYTHON, FORGER), CALM)
    assert (outcome.cause, outcome.exit_code, outcome.stdout) == ("exit", 7, b"")


@pytest.mark.parametrize(
    ("argv", "code"), [(("/bin/nope",), 127), (("nope",), 127), (("/usr",), 126), (("/etc/passwd",), 126)]
)
def test_what_cannot_be_started(attack: Callable[..., Outcome], argv: tuple[str, ...], code: int) -> None:
    outcome = attack(argv, CALM)
    assert (outcome.cause, outcome.exit_code) == ("exit", code)
    assert outcome.detail.startswith("the program could not be started")
