"""The journal: the order of consumption. Invariant: of two schedulers only the one that claimed last has entries that count.

An incarnation claims the log by an entry of a new epoch. Whoever reads the journal takes an entry of a higher epoch (a
claim), takes the next sequence number of the epoch it is in, and leaves everything else: late entries of a scheduler that
was replaced, and the claim that lost when two were made at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.ids import event_id
from schemas.journal import BatchFolded, Range
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.scheduler.fold import Batch, Input
from services.scheduler.settings import INPUTS, JOURNAL
from services.scheduler.state import Meta


def counts(meta: Meta, entry: BatchFolded) -> bool:
    """Whether a journal entry is the next one after the state that `meta` describes."""
    return entry.epoch > meta.epoch or (entry.epoch == meta.epoch and entry.seq > meta.seq)


def moved(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Range, ...]:
    """Ranges between two readings of the positions, in the order in which they are folded."""
    ranges = []
    for name, next_offset in after.items():
        topic, _, partition = name.rpartition("/")
        first = before.get(name, 0)
        if next_offset > first:
            ranges.append(Range(topic=topic, partition=int(partition), first=first, next=next_offset))
    return tuple(sorted(ranges, key=lambda found: (INPUTS.index(found.topic), found.partition)))


def ordered(records: Iterable[Record]) -> list[Record]:
    """Records of one batch in the order in which they are folded."""
    return sorted(records, key=lambda record: (INPUTS.index(record.topic), record.partition, record.offset))


def batch_of(entry: BatchFolded, records: Iterable[Record]) -> Batch:
    """What the fold takes for a journal entry and the records of its ranges, these in order."""
    return Batch(
        seq=entry.seq,
        now=entry.now,
        epoch=entry.epoch,
        caught_up=entry.caught_up,
        offsets={f"{part.topic}/{part.partition}": part.next for part in entry.ranges},
        inputs=tuple(
            Input(event=record.event, at=record.timestamp_ms / 1000.0, trace=record.envelope.traceparent)
            for record in records
        ),
    )


def outgoing(entry: BatchFolded, *, nonce: str = "") -> Outgoing:
    """The entry as a record; `nonce` tells claims apart that were made at once."""
    name = event_id("BatchFolded", entry.run, entry.epoch, entry.seq, nonce)
    return Outgoing(topic=JOURNAL, event=entry, key=entry.run, id=name)
