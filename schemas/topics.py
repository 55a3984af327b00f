"""All topics. Invariant: names, partitions, retention and cleanup are declared here once and made by `temper topics create`."""

from __future__ import annotations

import msgspec

from schemas.base import Data

DAY_MS = 86_400_000


class Topic(Data, frozen=True, kw_only=True):
    """Declaration of one topic; partition counts are part of the contract (raising one remaps keys)."""

    name: str
    partitions: int
    cleanup: str = "delete"
    retention_ms: int = 30 * DAY_MS
    max_message_bytes: int = 1_048_576
    dead_letters: bool = True
    """Whether `<name>.dlq` exists beside it."""
    guarded: bool = False
    """The scheduler rebuilds its state from it: the broker deletes nothing by itself, the scheduler what it needs no more."""

    def config(self) -> dict[str, str]:
        """Broker settings of the topic."""
        settings = {"cleanup.policy": self.cleanup, "max.message.bytes": str(self.max_message_bytes)}
        if "compact" in self.cleanup:
            settings |= {
                "min.cleanable.dirty.ratio": "0.2",
                "segment.ms": "3600000",
                "delete.retention.ms": str(7 * DAY_MS),
            }
        if "delete" in self.cleanup:
            settings["retention.ms"] = str(self.retention_ms)
        return settings


TASKS = Topic(name="tasks", partitions=6, retention_ms=-1, guarded=True)
TRAJECTORIES = Topic(name="trajectories", partitions=6, max_message_bytes=8_388_608)
REWARDS = Topic(name="rewards", partitions=6, retention_ms=-1, guarded=True)
CHECKPOINTS = Topic(name="checkpoints", partitions=1, retention_ms=-1, guarded=True)
TASK_STATES = Topic(
    name="task-states",
    partitions=6,
    cleanup="compact,delete",
    retention_ms=90 * DAY_MS,
    dead_letters=False,
)
"""Newest state of each task, and not of every task that ever was: no state that a task stays in lasts as long as this."""
EVALUATIONS = Topic(name="evaluations", partitions=1, retention_ms=-1, dead_letters=False)
HEARTBEATS = Topic(name="heartbeats", partitions=2, retention_ms=-1, guarded=True)
JOURNAL = Topic(name="journal", partitions=1, retention_ms=-1, guarded=True)
"""One partition for each shard of the scheduler."""
GRANTS = Topic(name="grants", partitions=1, retention_ms=-1, dead_letters=False, guarded=True)
SNAPSHOTS = Topic(name="snapshots", partitions=1, retention_ms=-1, dead_letters=False)
POOLS: tuple[str, ...] = ("standard", "fast")
"""Sampler pools of a default installation."""


def assignments(pool: str) -> Topic:
    """Topic of the work of one sampler pool."""
    return Topic(name=f"assignments.{pool}", partitions=6)


def dead_letters(name: str) -> Topic:
    """Topic of the raw bytes that could not be decoded from topic `name`."""
    return Topic(
        name=f"{name}.dlq",
        partitions=1,
        retention_ms=90 * DAY_MS,
        max_message_bytes=16_777_216,
        dead_letters=False,
    )


def journal(shards: int) -> Topic:
    """The journal of an installation with that many shards."""
    return msgspec.structs.replace(JOURNAL, partitions=max(shards, JOURNAL.partitions))


def all_topics(pools: tuple[str, ...] = POOLS, shards: int = 1) -> tuple[Topic, ...]:
    """Every topic of an installation with these sampler pools and shards, dead-letter topics included."""
    sources = (
        TASKS,
        *(assignments(pool) for pool in pools),
        TRAJECTORIES,
        REWARDS,
        CHECKPOINTS,
        TASK_STATES,
        EVALUATIONS,
        HEARTBEATS,
        journal(shards),
        GRANTS,
        SNAPSHOTS,
    )
    return sources + tuple(dead_letters(topic.name) for topic in sources if topic.dead_letters)
