"""Which scheduler may still speak. Invariant: what a replaced incarnation wrote too late changes nothing for its readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.runtime.wire import Record


class EpochFence:
    """Which incarnation of a scheduler's shard is the newest that was seen.

    By partition: records of one partition are in order, so what is of an older epoch there was written by a scheduler that had
    been replaced. Across partitions an older epoch may merely have been read later.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[object, int], int] = {}
        self.dropped = 0

    def passes(self, partition: object, shard: int, epoch: int) -> bool:
        """Whether a record may have an effect; one of an older epoch is counted."""
        key = (partition, shard)
        if epoch < self._newest.get(key, 0):
            self.dropped += 1
            return False
        self._newest[key] = epoch
        return True

    def admitted(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that may have an effect; events without an epoch always do."""
        for record in records:
            epoch = getattr(record.event, "epoch", None)
            place = (record.topic, record.partition)
            if epoch is None or self.passes(place, getattr(record.event, "shard", 0), epoch):
                yield record
