"""Faults on purpose, for trying the services out. Invariant: unless the environment asks for one, nothing here does anything.

TEMPER_FAULT names points of the code, with commas between: `service:point:n[:how]` acts the n-th time that this process
passes the point. `how` is `kill` (SIGKILL to itself; what is left out means this), `stop` (SIGSTOP: paused until somebody
continues it) or a number of seconds for which the whole process, event loop included, is blocked.
TEMPER_FAULT_DIR is a folder where each fault leaves a file before it acts: it acts once, however often the service starts.
TEMPER_FAULT_CLOCK = `offset[@after]`: the wall clock of this process is wrong by `offset` seconds, from `after` seconds after
its start on; what the kernel and other processes see is not changed.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

POINTS: tuple[str, ...] = (
    "scheduler:before-journal",
    "scheduler:after-journal",
    "scheduler:before-effects",
    "scheduler:after-effects",
    "scheduler:before-redis",
    "scheduler:after-redis",
    "scheduler:before-tidy",
    "sampler:after-lease",
    "sampler:mid-generation",
    "consumer:before-commit",
    "verifier:before-emit",
    "verifier:after-emit",
    "trainer:before-rename",
    "trainer:after-rename",
    "trainer:before-event",
    "trainer:after-event",
    "evaluator:after-ask",
    "evaluator:before-event",
    "evaluator:after-event",
)
"""Every name that `at` is called with; `consumer` is any service that works from a group."""
_SOUGHT = 2
"""Fields that name a point."""


@dataclass
class _Fault:
    name: str
    left: int
    how: str


def at(point: str) -> None:
    """The process passes `point`; it may not come back from here."""
    for fault in _armed.get(point, ()):
        fault.left -= 1
        if fault.left == 0 and _first(fault):
            _act(fault.how)


def _first(fault: _Fault) -> bool:
    folder = os.environ.get("TEMPER_FAULT_DIR", "")
    if not folder:
        return True
    try:
        with (Path(folder) / fault.name.replace(":", "_")).open("x") as mark:
            mark.write(f"{os.getpid()}\n")
    except FileExistsError:
        return False
    return True


def _act(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        time.sleep(float(how))  # blocks the loop: that is the fault


def parse(text: str) -> dict[str, list[_Fault]]:
    """The faults that TEMPER_FAULT spells, by point.

    Raises:
        ValueError: an unknown point, or no count.
    """
    found: dict[str, list[_Fault]] = {}
    for item in filter(None, text.split(",")):
        parts = item.split(":")
        point = ":".join(parts[:_SOUGHT])
        how = parts[_SOUGHT + 1] if len(parts) > _SOUGHT + 1 else "kill"
        if point not in POINTS or len(parts) < _SOUGHT + 1 or int(parts[_SOUGHT]) < 1:
            raise ValueError(
                f"TEMPER_FAULT: {item!r} is not service:point:n[:how] with one of {', '.join(POINTS)}"
            )
        if how not in ("kill", "stop"):
            float(how)
        found.setdefault(point, []).append(_Fault(name=item, left=int(parts[_SOUGHT]), how=how))
    return found


def _shift_clock(text: str) -> None:
    offset, _, after = text.partition("@")
    seconds, since = float(offset), time.monotonic() + float(after or 0.0)
    wall = time.time

    def shifted() -> float:
        return wall() + (seconds if time.monotonic() >= since else 0.0)

    time.time = shifted


_armed = parse(os.environ.get("TEMPER_FAULT", ""))
if os.environ.get("TEMPER_FAULT_CLOCK"):
    _shift_clock(os.environ["TEMPER_FAULT_CLOCK"])
