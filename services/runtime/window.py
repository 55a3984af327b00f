"""Records in flight. Invariant: an offset is committable only when every delivered record below it is finished.

Pure: no clock, no I/O. One `Ledger` holds one partition for as long as it is assigned; a ledger that was dropped at a
rebalance may still be told that its records are finished, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

COUNT_DIGITS, LENGTH_DIGITS = 4, 5
METADATA_LIMIT = 4000
"""Characters of commit metadata that are used; brokers take 4096 bytes by default."""


class Ledger:
    """Deliveries of one partition, from its committed offset on."""

    def __init__(self, committed: int, deliveries: dict[int, int] | None = None) -> None:
        """`deliveries`: how often each offset from `committed` on was delivered before, as `parse_deliveries` reads it."""
        self._open: deque[int] = deque()
        self._pending: set[int] = set()
        self._next = committed
        self._before = dict(deliveries or {})

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
        return self._open[0] if self._open else self._next

    def deliveries(self, offset: int) -> int:
        """Times the record was delivered before."""
        return self._before.get(offset, 0)

    def take(self, offset: int) -> None:
        """A record is delivered; offsets go up, gaps are allowed.

        Raises:
            ValueError: the offset was delivered already.
        """
        if offset < self._next:
            raise ValueError(f"offset {offset} was delivered already, {self._next} is next")
        self._open.append(offset)
        self._pending.add(offset)
        self._next = offset + 1

    def finish(self, offset: int) -> bool:
        """The record is done; False if it was done already or never delivered."""
        if offset not in self._pending:
            return False
        self._pending.discard(offset)
        while self._open and self._open[0] not in self._pending:
            self._before.pop(self._open.popleft(), None)
        return True

    def metadata(self, *, survived: bool = False) -> str:
        """Delivery counts of all records from `committable` on, for the commit.

        `survived`: the worker hands the unfinished records back in good order, so this delivery does not count.
        """
        counts = dict(self._before)
        if not survived:
            for offset in self._open:
                counts[offset] = counts.get(offset, 0) + 1
        return render_deliveries(self.committable, counts)


def render_deliveries(committed: int, counts: dict[int, int]) -> str:
    """Counts by offset as run lengths from `committed` on: `0x3 2x1` is three never delivered, then one delivered twice."""
    runs: list[list[int]] = []
    at = committed
    for offset in sorted(offset for offset, count in counts.items() if count > 0 and offset >= committed):
        if offset > at:
            runs.append([0, offset - at])
        if runs and runs[-1][0] == counts[offset]:
            runs[-1][1] += 1
        else:
            runs.append([counts[offset], 1])
        at = offset + 1
    parts: list[str] = []
    size = 0
    for count, length in runs:
        part = f"{count}x{length}"
        size += len(part) + 1
        if size > METADATA_LIMIT:
            break  # What matters stands at the head: a record that kills its worker is among the oldest unfinished.
        parts.append(part)
    return " ".join(parts)


def parse_deliveries(committed: int, metadata: str) -> dict[int, int]:
    """Inverse of `render_deliveries`; text that is not ours counts as no deliveries."""
    counts: dict[int, int] = {}
    at = committed
    for count, length in _runs(metadata):
        if count:
            counts.update(dict.fromkeys(range(at, at + length), count))
        at += length
    return counts


def _runs(metadata: str) -> Iterator[tuple[int, int]]:
    for part in metadata.split():
        count, _, length = part.partition("x")
        if not (
            count.isdecimal()
            and length.isdecimal()
            and len(count) <= COUNT_DIGITS
            and len(length) <= LENGTH_DIGITS
        ):
            return
        yield int(count), int(length)
