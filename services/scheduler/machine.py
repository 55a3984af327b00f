"""The states of a task. Invariant: closed and total: a pair of state and event is in the table, or the event changes nothing.

The table is the only place that says which state follows. `moves.take` looks there before it touches anything, and counts
what is not in it; every move is announced by one `TaskState`.
"""

from __future__ import annotations

from typing import Literal, get_args

from schemas.states import TERMINAL, UNDER_WAY
from schemas.states import State as Phase

Happening = Literal[
    "leased",
    "started",
    "returned",
    "rested",
    "missed",
    "timed_out",
    "lost",
    "drained",
    "parted",
    "passed",
    "failed",
    "replaced",
    "died",
    "cancelled",
]
"""What can happen to a task once it is admitted; `missed` to `drained` are the four ways to another attempt."""
PHASES: tuple[Phase, ...] = get_args(Phase)
LIVE: tuple[Phase, ...] = tuple(phase for phase in PHASES if phase not in TERMINAL)
HAPPENINGS: tuple[Happening, ...] = get_args(Happening)

TABLE: dict[tuple[Phase, Happening], Phase] = {
    ("ready", "leased"): "leased",
    ("leased", "started"): "running",
    ("leased", "returned"): "verifying",
    ("running", "returned"): "verifying",
    ("backoff", "rested"): "ready",
    ("waiting", "passed"): "succeeded",
    ("waiting", "failed"): "failed",
    ("waiting", "died"): "dead",
}
for _phase in (phase for phase in LIVE if phase in UNDER_WAY):
    TABLE |= {
        (_phase, "missed"): "backoff",
        (_phase, "timed_out"): "backoff",
        (_phase, "lost"): "backoff",
        (_phase, "drained"): "backoff",
        (_phase, "parted"): "waiting",
        (_phase, "passed"): "succeeded",
        (_phase, "failed"): "failed",
        (_phase, "replaced"): "degraded",
        (_phase, "died"): "dead",
    }
for _phase in LIVE:
    TABLE[_phase, "cancelled"] = "cancelled"

UNTIL: dict[Phase, str] = {
    "ready": "a free slot of its pool, within quota, pacing and the fair order",
    "leased": "timeouts.lease_s",
    "running": "timeouts.lease_s without a renewal, timeouts.attempt_s in any case",
    "verifying": "timeouts.verify_s after the last verified stage",
    "backoff": "retry.backoff_max_s at most",
    "waiting": "timeouts.children_s",
}
"""What ends each live state: a deadline, but for `ready`, which ends on a condition and is bounded by the fair order."""


def after(phase: Phase, happening: Happening) -> Phase | None:
    """The state that follows; None where the event means nothing in that state."""
    return TABLE.get((phase, happening))
