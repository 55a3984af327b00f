"""Figures of the edge. Invariant: everything a user may change is in the run's configuration; these follow from the protocol."""

from __future__ import annotations

from services.runtime.settings import Process, SettingsError

ORDER: tuple[str, ...] = ("checkpoints", "heartbeats", "grants", "tasks", "rewards")
"""The order in which the topics of one batch are folded: renewals before what could expire without them."""
INPUTS: tuple[str, ...] = ("checkpoints", "heartbeats", "tasks", "rewards")
"""Topics that a scheduler with one shard reads."""
JOURNAL = "journal"
SNAPSHOTS = "snapshots"
GROUP = "scheduler"
"""Consumer group whose members share the shards."""
BATCH = 2000
"""Records in one batch at most."""
STALL_S = 5.0
"""After a pause this long, what the log holds is read before anything may expire."""
HEARTBEAT_S = 1.0
PROGRESS_S = 30.0
"""A scheduler that has not completed a turn for this long is not healthy."""
CLAIM_S = 30.0
"""Longest wait for one's own entry in the journal."""
FETCH_WAIT_MS = 20
"""Longest that the broker holds a request for new inputs; bounds what a record waits that came to another partition."""
SAVE_S = 0.1
"""Least time between two writes of the projection."""
REDIS_TIMEOUT_S = 5.0
"""Longest wait for the answer to one call."""
REDIS_LOAD_S = 60.0
"""Longest that reading the whole projection may take; after that a snapshot or the log serves as well."""
REDIS_PAUSE_S = 5.0
"""Pause before Redis is tried again after a failure."""


def inputs(shards: int) -> tuple[str, ...]:
    """Topics that each shard reads."""
    return INPUTS if shards == 1 else ORDER


def redis_key(prefix: str, shard: int = 0) -> str:
    """Key of the hash that holds the projection of one shard of this installation."""
    return f"temper:{prefix}:scheduler" + (f":{shard}" if shard else "")


def redis_of(process: Process) -> str:
    """Address of Redis.

    Raises:
        SettingsError: the environment names none.
    """
    if not process.redis:
        raise SettingsError("TEMPER_REDIS is not set; give Redis as redis://host:port/0, or use `temper up`")
    return process.redis
