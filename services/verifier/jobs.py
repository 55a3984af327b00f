"""What the pool holds of one answer. Invariant: plain data; `done` is set exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.frames import Request
from services.verifier.track import Track

COUNTED = (
    *("jobs", "cached", "scored", "invalid", "infra", "busy_s"),
    *("reverified", "disagreements", "unsettled"),
    *("breakers_opened", "breakers_open", "refused"),
    *("stages_run", "stages_resumed", "stages_again"),
)
"""Counters; `unsettled`: second runs not made or not compared; `breakers_open`: domains not judged now.

`stages_run`: stages of long answers committed here; `stages_resumed`: taken over as another committed them;
`stages_again`: to be judged again because a snapshot was lost."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and how it came about. Seconds: waiting for a slot, and in it; both 0 for a cached one.

    `settled`: no run met a limit of its jail or had a network, on which another load or day might tell; only such a one is
    remembered or compared.
    """

    verdict: Verdict
    cached: bool = False
    queued_s: float = 0.0
    duration_s: float = 0.0
    settled: bool = True
    fault: Literal["", "killed"] = ""
    """`killed`: no worker survived judging it."""
    track: Track | None = None
    """Of an answer judged stage by stage: its snapshots may go when the verdict is out."""


@dataclass(slots=True)
class Job:
    """An answer in the line; `key` is that of the cache, `done` gets its verdict."""

    key: str
    domain: str
    request: Request
    bound_s: float
    """Sum of the limits of its runs."""
    deadline_s: float
    done: asyncio.Future[Judged]
    against: Verdict | None = None
    """Set when this is a second run, to be compared with that verdict."""
    since: float = field(default_factory=time.monotonic)
    hold_until: float = 0.0
    """How long it may wait while its domain is not judged, CLOCK_MONOTONIC seconds."""
    probe: bool = False
    """Judged although its domain is not, to see whether that is still so."""
    track: Track | None = None
    """Set when it is judged stage by stage; then the bounds are of one stage."""

    @property
    def weight(self) -> float:
        """Its domain's."""
        return self.request.card.weight


def bounded(card: Card, task: Task, runs: Callable[[str, dict[str, Any]], int]) -> float:
    """Seconds that the jail may take in all for as many runs as a family says."""
    try:
        count = runs(card.verifier.family, task.spec)
    except Exception:  # noqa: BLE001 (a malformed task; its verdict will say what is wrong with it)
        count = 1
    return count * card.limits.wall_s
