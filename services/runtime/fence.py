"""What of a scheduler's records counts. Invariant: late records of a replaced one and transitions told again change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.states import TaskState
from services.runtime.wire import Record

REMEMBERED = 65_536
"""Transitions that a reader knows again: only those of its predecessor's last entry does a scheduler tell once more."""


class EpochFence:
    """Which incarnation of a scheduler's shard is the newest that was seen.

    By partition: records of one partition are in order, so what is of an older epoch there was written by a scheduler that had
    been replaced. Across partitions an older epoch may merely have been read later.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[object, int], int] = {}
        self._told: dict[str, None] = {}
        self.dropped = 0
        self.again = 0

    def passes(self, partition: object, shard: int, epoch: int) -> bool:
        """Whether a record may have an effect; one of an older epoch is counted."""
        key = (partition, shard)
        if epoch < self._newest.get(key, 0):
            self.dropped += 1
            return False
        self._newest[key] = epoch
        return True

    def admitted(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that may have an effect; events without an epoch always do.

        A lease that is told again passes: whoever was away for the first may take it up.
        """
        for record in records:
            epoch = getattr(record.event, "epoch", None)
            place = (record.topic, record.partition)
            if epoch is not None and not self.passes(place, getattr(record.event, "shard", 0), epoch):
                continue
            if isinstance(record.event, TaskState) and not self._news(record.envelope.id):
                self.again += 1
                continue
            yield record

    def _news(self, name: str) -> bool:
        if name in self._told:
            return False
        self._told[name] = None
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        return True
