"""Retries. Invariant: two budgets that never pay for each other; delays spread even at the cap."""

from __future__ import annotations

import math

from schemas.ids import derive
from services.scheduler.powers import exp2

_DOUBLINGS = 64
"""Beyond these every delay is at any cap that a card can hold; keeps the power finite."""


def jitter(task_id: str, attempt: int) -> float:
    """A number in [0, 1) that depends on nothing but the task and the attempt."""
    return int(derive("jitter", task_id, attempt)[:13], 16) / float(16**13)


def backoff(task_id: str, attempt: int, tries: int, base_s: float, cap_s: float) -> float:
    """Seconds to wait: `base * 2 ** (tries - 1 + u)`, u in [0, 1), never above `cap_s`; `tries` counts from 1.

    The cap bounds the power before the jitter is applied, so that delays at the cap still spread over
    [cap / 2, cap]: clamping the result would send every capped task back at the same time.
    """
    grown = math.ldexp(base_s, min(tries - 1, _DOUBLINGS))
    return min(cap_s, min(grown, cap_s / 2.0) * exp2(jitter(task_id, attempt)))
