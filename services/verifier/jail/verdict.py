"""From what was observed to the cause that is reported.

Invariant: pure; the order is own kill, then the kernel's out-of-memory kill, then evidence that a limit made the
program fail, then its wait status, and only when there is none of all these is it our fault (`infra`).
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from services.verifier.jail.job import Cause, Limits
from services.verifier.jail.supervise import Ending, Status

LOG_TAIL = 300


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counters read after the end: kernel's memory kills, forks refused for `pids`, and whether the disk is full."""

    oom_kills: int
    refused_forks: int
    disk_full: bool


def judge(ending: Ending, evidence: Evidence, limits: Limits) -> tuple[Cause, str]:
    """Cause and one line of detail."""
    status = ending.status
    if ending.survivors:
        return "infra", f"{ending.survivors} processes of the job could not be killed"
    if not evidence.oom_kills and (ending.killed == "setup" or status.failed or status.started is None):
        return "infra", f"the jail could not be set up: {tail(ending.log)}"
    if ending.killed and ending.killed != "setup":
        return ending.killed, at_limit(ending.killed, limits)
    if evidence.oom_kills:
        return (
            "memory",
            f"{evidence.oom_kills} processes killed at the memory limit of {limits.memory_bytes} bytes",
        )
    if status.exit_code is None and status.signal is None:
        return "infra", f"the jail ended without a status: {tail(ending.log)}"
    return own_end(status, evidence, limits)


def met(ending: Ending, evidence: Evidence) -> tuple[Cause, ...]:
    """Every limit that the job met, whether or not one of them was the cause of its end.

    All processes of a job share its limits. Which of them meets one first, and how far the others are then, is the kernel's
    turn: what comes of it may be another thing next time.
    """
    found: list[Cause] = []
    if ending.killed and ending.killed != "setup":
        found.append(ending.killed)
    if evidence.oom_kills:
        found.append("memory")
    if evidence.refused_forks:
        found.append("pids")
    if evidence.disk_full or ending.status.signal == signal.SIGXFSZ:
        found.append("disk")
    return tuple(found)


def at_limit(reason: str, limits: Limits) -> str:
    """What our own kill was for."""
    return {
        "wall": f"killed at the wall limit of {limits.wall_s:g} s",
        "cpu": f"used more than the CPU limit of {limits.cpu_s:g} s",
        "output": f"killed for writing far more than the output limit of {limits.output_bytes} bytes",
    }[reason]


def own_end(status: Status, evidence: Evidence, limits: Limits) -> tuple[Cause, str]:
    """The program ended by itself: was it a limit that made it fail? One that did not is only mentioned."""
    failed = status.exit_code != 0
    met: list[tuple[Cause, str]] = []
    if evidence.refused_forks:
        met.append(("pids", f"forks refused at the limit of {limits.pids} processes"))
    if status.signal == signal.SIGXFSZ:
        met.append(("disk", f"a file grew past the limit of {limits.file_bytes} bytes"))
    elif evidence.disk_full:
        met.append(("disk", f"no room left at the limit of {limits.disk_bytes} bytes, {limits.inodes} files"))
    if status.exec_errno is not None:
        return "exit", f"the program could not be started: {os.strerror(status.exec_errno)}"
    if failed and met:
        return met[0][0], "; ".join(text for _, text in met)
    return "exit" if status.signal is None else "signal", "; ".join(text for _, text in met)


def tail(log: str) -> str:
    """The end of what went wrong on one line."""
    text = " | ".join(line.strip() for line in log.splitlines() if line.strip())
    return text[-LOG_TAIL:] or "no message"
