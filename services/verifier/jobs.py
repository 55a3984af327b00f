"""What the pool holds of one answer. Invariant: plain data; `done` is set exactly once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from schemas.verdicts import Verdict

COUNTED = (
    *("jobs", "cached", "scored", "invalid", "infra", "busy_s"),
    *("reverified", "disagreements", "unsettled"),
    *("breakers_opened", "breakers_open", "refused"),
)
"""Counters; `unsettled`: second runs not made or not compared; `breakers_open`: domains not judged now."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and how it came about. Seconds: waiting for a slot, and in it; both 0 for a cached one.

    `settled`: it depends neither on how busy the machine was nor on a network; only such a one is remembered or compared.
    """

    verdict: Verdict
    cached: bool = False
    queued_s: float = 0.0
    duration_s: float = 0.0
    settled: bool = True


@dataclass(slots=True)
class Job:
    """An answer in the line; `key` is that of the cache, `done` gets its verdict."""

    key: str
    domain: str
    frame: bytes
    bound_s: float
    """Sum of the limits of its runs."""
    deadline_s: float
    done: asyncio.Future[Judged]
    against: Verdict | None = None
    """Set when this is a second run, to be compared with that verdict."""
    since: float = field(default_factory=time.monotonic)
