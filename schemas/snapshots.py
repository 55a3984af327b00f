"""Durable snapshots of the scheduler. Invariant: the event is written after everything it points to is stored."""

from __future__ import annotations

from schemas.base import Event
from schemas.trajectories import BlobRef


class SnapshotStored(Event, frozen=True, kw_only=True):
    """The state of a shard after journal entry (epoch, seq) lies in the blob store."""

    shard: int
    shards: int = 1
    epoch: int
    seq: int
    journal: int
    """Offset of the journal entry that follows."""
    offsets: dict[str, int] = {}
    """`topic/partition` -> next record to fold: what lies before them is not needed to go on from here."""
    fold: int
    """Fold version; a scheduler of another one cannot use it."""
    manifest: BlobRef
    """The list of the parts, oldest first; a later part wins."""
    records: int = 0
    """Fields in all parts."""
    size: int = 0
    """Bytes of all parts as stored."""
