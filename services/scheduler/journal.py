"""The journal: the order of consumption. Invariant: of two schedulers only the one that claimed last has entries that count.

Each shard has a partition of it. An incarnation claims its shard by an entry of a new epoch. Whoever reads the journal takes
an entry of a higher epoch (a claim), takes the next sequence number of the epoch it is in, and leaves late entries of a
scheduler that was replaced, and the claim that lost when two were made at once. The writer knows at which offset its next
entry must come to lie: one that lies elsewhere proves that another scheduler has written, and this one ends before any effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.base import Event
from schemas.ids import event_id
from schemas.journal import BatchFolded, Range
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.wire import Record
from services.scheduler.fold import Batch, Input
from services.scheduler.policies import Policies
from services.scheduler.records import Meta
from services.scheduler.settings import JOURNAL, ORDER
from services.scheduler.shards import concerning
from services.scheduler.state import State


class Fenced(Unavailable):
    """Another scheduler has taken over; this one must end before it does anything more."""


class Gap(Unavailable):
    """Entries that the state needs are missing from the journal, or are of another division into shards."""


def counts(meta: Meta, entry: BatchFolded) -> bool:
    """Whether a journal entry is the next one after the state that `meta` describes.

    Raises:
        Gap: entries between the state and this one are missing.
    """
    if entry.epoch < meta.epoch or (entry.epoch == meta.epoch and entry.seq <= meta.seq):
        return False
    if entry.seq > meta.seq + 1:
        raise Gap(
            f"entry {entry.seq} of epoch {entry.epoch} follows on entry {meta.seq} of epoch {meta.epoch}: "
            "what lies between is missing"
        )
    return True


def same_division(entry: BatchFolded, shard: int, shards: int) -> None:
    """Check that an entry is of this division of the domains.

    Raises:
        Gap: it is not.
    """
    if (entry.shard, entry.shards) != (shard, shards):
        raise Gap(
            f"this log is divided into {entry.shards} shards, not {shards}: a task would change its owner; "
            f"set scheduler.shards = {entry.shards}, or begin a new log with another TEMPER_PREFIX"
        )


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Range, ...]:
    """Ranges between two readings of the positions, in the order in which they are folded."""
    ranges = []
    for name, next_offset in after.items():
        topic, _, partition = name.rpartition("/")
        first = before.get(name, 0)
        if next_offset > first:
            ranges.append(Range(topic=topic, partition=int(partition), first=first, next=next_offset))
    return tuple(sorted(ranges, key=lambda found: (ORDER.index(found.topic), found.partition)))


def ordered(records: Iterable[Record]) -> list[Record]:
    """Records of one batch in the order in which they are folded."""
    return sorted(records, key=lambda record: (ORDER.index(record.topic), record.partition, record.offset))


def batch_of(entry: BatchFolded, records: Iterable[Record], state: State, policies: Policies) -> Batch:
    """What the fold of a shard in `state` takes for a journal entry and the records of its ranges, these in order."""
    if policies.shards == 1:
        inputs = tuple(_input(record, record.event) for record in records)
    else:
        inputs = tuple(
            _input(record, event)
            for record in records
            if (event := concerning(state, policies, record.event)) is not None
        )
    return Batch(
        seq=entry.seq,
        now=entry.now,
        epoch=entry.epoch,
        caught_up=entry.caught_up,
        offsets={f"{part.topic}/{part.partition}": part.next for part in entry.ranges},
        inputs=inputs,
    )


def _input(record: Record, event: Event) -> Input:
    return Input(
        event=event,
        at=record.timestamp_ms / 1000.0,
        trace=record.envelope.traceparent,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def outgoing(entry: BatchFolded, *, nonce: str = "") -> Outgoing:
    """The entry as a record; `nonce` tells claims apart that were made at once."""
    parts = (entry.run, entry.epoch, entry.seq, nonce)
    name = event_id("BatchFolded", *(parts if entry.shard == 0 else (*parts, entry.shard)))
    return Outgoing(topic=JOURNAL, event=entry, key=entry.run, id=name)


class Journal:
    """The end of one shard's journal, to which this incarnation alone may write."""

    def __init__(self, producer: Producer, shard: int, position: int) -> None:
        """`position`: offset at which the next entry must come to lie."""
        self._producer, self._shard = producer, shard
        self.position = position

    async def append(self, entry: BatchFolded) -> None:
        """Write the next entry.

        Raises:
            Fenced: another scheduler wrote before it; its effects must not be.
            Unavailable: it is not acknowledged.
        """
        offset = await self._producer.append(outgoing(entry), partition=self._shard)
        if offset != self.position:
            raise Fenced(
                f"shard {self._shard}: entry {entry.seq} of epoch {entry.epoch} came to lie at offset {offset} of the "
                f"journal, not {self.position}: another scheduler has taken over; this one ends without acting on it"
            )
        self.position += 1
