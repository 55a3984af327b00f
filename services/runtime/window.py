"""Records in flight. Invariant: an offset is committable only when every delivered record below it is finished.

Pure: no clock, no I/O. One `Ledger` holds one partition for as long as it is assigned; a ledger that was dropped at a
rebalance may still be told that its records are finished, and changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

COUNT_DIGITS, LENGTH_DIGITS, FINISHED_DIGITS = 4, 5, 12
FINISHED = "d"
METADATA_LIMIT = 4000
"""Characters of commit metadata that are used; brokers take 4096 bytes by default."""


class Ledger:
    """Deliveries of one partition, from its committed offset on.

    A record may stay unfinished for hours while many behind it end. Those are remembered as finished, in the commit too, so
    that whoever gets the partition next does not do them again: memory and metadata grow with the unfinished ones alone.
    """

    def __init__(
        self,
        committed: int,
        deliveries: dict[int, int] | None = None,
        finished: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`deliveries`: how often each offset from `committed` on was delivered before, as `parse_deliveries` reads it.

        `finished`: ranges [first, next) of offsets that were finished before, as `parse_finished` reads them.
        """
        self._pending: OrderedDict[int, None] = OrderedDict()
        """In the order of delivery, which is that of the offsets."""
        self._next = committed
        self._before = dict(deliveries or {})
        self._progressed: set[int] = set()
        self._finished = list(finished)

    @property
    def unfinished(self) -> int:
        """Records delivered and not finished."""
        return len(self._pending)

    @property
    def next(self) -> int:
        """Offset of the next record to be delivered."""
        return self._next

    @property
    def committable(self) -> int:
        """The contiguous prefix: everything delivered below this offset is finished."""
        return next(iter(self._pending), self._next)

    def deliveries(self, offset: int) -> int:
        """Times the record was delivered before."""
        return self._before.get(offset, 0)

    def take(self, offset: int) -> bool:
        """A record is delivered; offsets go up, gaps are allowed. False if it was finished in an earlier life.

        Raises:
            ValueError: the offset was delivered already.
        """
        if offset < self._next:
            raise ValueError(f"offset {offset} was delivered already, {self._next} is next")
        self._next = offset + 1
        while self._finished and self._finished[0][1] <= offset:
            self._finished.pop(0)
        if self._finished and self._finished[0][0] <= offset:
            self._before.pop(offset, None)
            return False
        self._pending[offset] = None
        return True

    def finish(self, offset: int) -> bool:
        """The record is done; False if it was done already or never delivered."""
        if offset not in self._pending:
            return False
        del self._pending[offset]
        self._before.pop(offset, None)
        self._progressed.discard(offset)
        return True

    def progressed(self, offset: int) -> bool:
        """The record is not done, but further than it was: its deliveries, this one too, count no more. False as `finish`."""
        if offset not in self._pending:
            return False
        self._before.pop(offset, None)
        self._progressed.add(offset)
        return True

    def metadata(self, *, survived: bool = False) -> str:
        """Delivery counts of all records from `committable` on, and which of them are finished, for the commit.

        `survived`: the worker hands the unfinished records back in good order, so this delivery does not count.
        """
        counts = dict(self._before)
        if not survived:
            for offset in self._pending:
                if offset not in self._progressed:
                    counts[offset] = counts.get(offset, 0) + 1
        finished: list[tuple[int, int]] = []
        at = self.committable
        for offset in (*self._pending, self._next):
            if offset > at:
                finished.append((at, offset))
            at = offset + 1
        finished += [(max(first, self._next), end) for first, end in self._finished if end > self._next]
        return render_deliveries(self.committable, counts, finished)


def render_deliveries(
    committed: int, counts: dict[int, int], finished: Sequence[tuple[int, int]] = ()
) -> str:
    """Counts by offset as run lengths from `committed` on: `0x3 2x1` is three never delivered, then one delivered twice.

    `dx7` are seven that are finished; `finished` holds such ranges [first, next), in order and without counts in them.
    """
    known = [
        (offset, offset + 1, str(count))
        for offset, count in counts.items()
        if count > 0 and offset >= committed
    ]
    known += [(max(first, committed), end, FINISHED) for first, end in finished if end > committed]
    runs: list[tuple[str, int]] = []
    at = committed
    for first, end, what in sorted(known):
        if first > at:
            runs.append(("0", first - at))
        if runs and runs[-1][0] == what and first == at:
            runs[-1] = (what, runs[-1][1] + end - first)
        else:
            runs.append((what, end - first))
        at = end
    parts: list[str] = []
    size = 0
    for what, length in runs:
        part = f"{what}x{length}"
        size += len(part) + 1
        if size > METADATA_LIMIT:
            break  # What matters stands at the head: a record that kills its worker is among the oldest unfinished.
        parts.append(part)
    return " ".join(parts)


def parse_deliveries(committed: int, metadata: str) -> dict[int, int]:
    """Inverse of `render_deliveries`; text that is not ours counts as no deliveries."""
    counts: dict[int, int] = {}
    for count, first, end in _runs(committed, metadata):
        if count > 0:
            counts.update(dict.fromkeys(range(first, end), count))
    return counts


def parse_finished(committed: int, metadata: str) -> list[tuple[int, int]]:
    """The ranges [first, next) that `render_deliveries` was told are finished."""
    return [(first, end) for count, first, end in _runs(committed, metadata) if count < 0]


def _runs(committed: int, metadata: str) -> Iterator[tuple[int, int, int]]:
    """Count (-1: finished), first offset and the one behind the last, of each run."""
    at = committed
    for part in metadata.split():
        what, _, length = part.partition("x")
        finished = what == FINISHED
        if not (
            (finished or (what.isdecimal() and len(what) <= COUNT_DIGITS))
            and length.isdecimal()
            and len(length) <= (FINISHED_DIGITS if finished or what == "0" else LENGTH_DIGITS)
        ):
            return
        end = at + int(length)
        yield (-1 if finished else int(what)), at, end
        at = end
