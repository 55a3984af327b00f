"""Figures of the edge. Invariant: everything a user may change is in the run's configuration; these follow from the protocol."""

from __future__ import annotations

from services.runtime.settings import Process, SettingsError

INPUTS: tuple[str, ...] = ("checkpoints", "heartbeats", "tasks", "rewards")
"""Topics the scheduler reads, in the order in which one batch is folded: renewals before what could expire without them."""
JOURNAL = "journal"
BATCH = 2000
"""Records in one batch at most."""
STALL_S = 5.0
"""After a pause this long, what the log holds is read before anything may expire."""
HEARTBEAT_S = 1.0
PROGRESS_S = 30.0
"""A scheduler that has not completed a turn for this long is not healthy."""
CLAIM_S = 30.0
"""Longest wait for one's own entry in the journal."""
REDIS_TIMEOUT_S = 5.0
REDIS_PAUSE_S = 5.0
"""Pause before Redis is tried again after a failure."""


def redis_key(prefix: str) -> str:
    """Key of the hash that holds the projection of this installation."""
    return f"temper:{prefix}:scheduler"


def redis_of(process: Process) -> str:
    """Address of Redis.

    Raises:
        SettingsError: the environment names none.
    """
    if not process.redis:
        raise SettingsError("TEMPER_REDIS is not set; give Redis as redis://host:port/0, or use `temper up`")
    return process.redis
