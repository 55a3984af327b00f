"""The cause follows the facts in a fixed order; only when there is none is it our fault."""

from __future__ import annotations

import errno

import pytest

from services.verifier.jail.job import Limits
from services.verifier.jail.launcher import PAGE
from services.verifier.jail.supervise import Ending, KillReason, Status, read_page
from services.verifier.jail.verdict import Evidence, judge, met

NONE = Evidence(0, 0, disk_full=False)
ALL = Evidence(1, 1, disk_full=True)


def ended(
    code: int | None = None, signal: int | None = None, killed: KillReason = "", started: float | None = 1.0
) -> Ending:
    return Ending(killed, Status(started, 2.0, code, signal), 1.0, 0.1, 0, "last words")


@pytest.mark.parametrize(
    ("ending", "evidence", "cause"),
    [
        (ended(0), NONE, "exit"),
        (ended(255), NONE, "exit"),
        (ended(None, 9), NONE, "signal"),
        (ended(killed="wall"), ALL, "wall"),
        (ended(killed="cpu"), ALL, "cpu"),
        (ended(killed="output"), ALL, "output"),
        (ended(None, 9), ALL, "memory"),
        (ended(0), Evidence(1, 0, disk_full=False), "memory"),
        (ended(1), Evidence(0, 1, disk_full=True), "pids"),
        (ended(1), Evidence(0, 0, disk_full=True), "disk"),
        (ended(None, 25), NONE, "disk"),
        (ended(0), Evidence(0, 5, disk_full=True), "exit"),
        (ended(killed="setup", started=None), NONE, "infra"),
        (ended(started=None), NONE, "infra"),
        (ended(), NONE, "infra"),
        (ended(started=None), ALL, "memory"),
        (ended(killed="setup", started=None), ALL, "memory"),
    ],
)
def test_order(ending: Ending, evidence: Evidence, cause: str) -> None:
    assert judge(ending, evidence, Limits())[0] == cause


@pytest.mark.parametrize(
    ("ending", "evidence", "limits"),
    [
        (ended(0), NONE, ()),
        (ended(None, 9), NONE, ()),
        (ended(killed="setup", started=None), NONE, ()),
        (ended(killed="wall"), NONE, ("wall",)),
        (ended(killed="cpu"), ALL, ("cpu", "memory", "pids", "disk")),
        (ended(0), Evidence(1, 0, disk_full=False), ("memory",)),
        (ended(0), Evidence(0, 5, disk_full=False), ("pids",)),
        (ended(None, 25), NONE, ("disk",)),
    ],
)
def test_every_limit_that_was_met_is_told(
    ending: Ending, evidence: Evidence, limits: tuple[str, ...]
) -> None:
    assert met(ending, evidence) == limits


def test_infra_says_why() -> None:
    assert "last words" in judge(ended(started=None), NONE, Limits())[1]


def test_survivors_are_our_fault() -> None:
    ending = ended(0)
    ending.survivors = 2
    assert judge(ending, NONE, Limits())[0] == "infra"


def test_a_limit_met_but_not_fatal_is_mentioned() -> None:
    assert "forks refused" in judge(ended(0), Evidence(0, 1, disk_full=False), Limits())[1]


def test_a_program_that_is_not_there() -> None:
    ending = ended(127)
    ending.status.exec_errno = errno.ENOENT
    assert judge(ending, NONE, Limits()) == (
        "exit",
        "the program could not be started: No such file or directory",
    )


def test_a_step_of_the_set_up_that_failed_is_our_fault_whatever_the_init_returned() -> None:
    ending = ended(1)
    ending.status.failed = "overlay: Invalid argument"
    assert judge(ending, NONE, Limits())[0] == "infra"


def page(
    number: int = 5,
    error: int = 0,
    step: bytes = b"",
    start: int = 0,
    end: int = 0,
    wait: int = 0,
    noexec: int = 0,
    disturbed: int = 0,
) -> bytes:
    return PAGE.pack(number, error, step, start, end, wait, noexec, disturbed, disturbed)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (page(0), Status()),
        (page(4, start=10**9, end=2 * 10**9), Status()),
        (page(start=10**9), Status(1.0)),
        (page(start=10**9, end=2 * 10**9, wait=3 << 8), Status(1.0, 2.0, 3)),
        (page(start=10**9, end=2 * 10**9, wait=11), Status(1.0, 2.0, None, 11)),
        (page(start=10**9, end=2 * 10**9, wait=11 | 0x80), Status(1.0, 2.0, None, 11)),
        (page(start=10**9, end=2 * 10**9, wait=127 << 8, noexec=2), Status(1.0, 2.0, 127, None, 2)),
        (page(start=10**9, disturbed=1), Status(1.0, disturbed=True)),
        (page(error=errno.EPERM, step=b"proc"), Status(failed="proc: Operation not permitted")),
        (page(0, error=errno.ENOSPC, step=b"clone3"), Status(failed="clone3: No space left on device")),
    ],
)
def test_what_the_init_noted(told: bytes, status: Status) -> None:
    assert read_page(told, 5) == status
