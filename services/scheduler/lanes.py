"""Where ready tasks wait and leases are counted. Invariant: sums and orders here are those of the entries put in.

Derived from the records, never stored.
"""

from __future__ import annotations

import heapq
from collections import deque

from services.scheduler.records import TaskEntry

STARTED = 1 << 48
"""What a task that had an attempt is put before others by, at equal deadlines; more than there will be submissions."""
Key = tuple[int, int, float, str]
"""Place of a domain among those of its board, smallest first: borrows (0 or 1), exponent and mantissa of its usage, name."""


class Leases(dict[str, tuple[int, int]]):
    """Leases that hold slots, with what each holds (slots, tokens). The sums change with the set and with nothing else."""

    __slots__ = ("slots", "tokens")

    def __init__(self) -> None:
        super().__init__()
        self.slots = 0
        self.tokens = 0

    def hold(self, lease: str, slots: int, tokens: int) -> None:
        """Add a lease that is not among them."""
        self[lease] = (slots, tokens)
        self.slots += slots
        self.tokens += tokens

    def release(self, lease: str) -> None:
        """Take one out."""
        slots, tokens = self.pop(lease)
        self.slots -= slots
        self.tokens -= tokens


class Lane:
    """Ready tasks of one pool, purpose and domain, by (deadline, started first, submission).

    Most come in the order in which they go: these wait in a line. The others, and all that had an attempt, wait in a heap.
    What has moved on is dropped when it comes up.
    """

    __slots__ = ("heap", "line", "ready")

    def __init__(self) -> None:
        self.line: deque[TaskEntry] = deque()
        self.heap: list[tuple[float, int, str]] = []
        self.ready = 0

    def add(self, entry: TaskEntry) -> None:
        """Take a ready task in."""
        self.ready += 1
        if not entry.attempt:
            line = self.line
            if not line or (line[-1].deadline, line[-1].order) < (entry.deadline, entry.order):
                line.append(entry)
                return
        rank = entry.order - STARTED if entry.attempt else entry.order
        heapq.heappush(self.heap, (entry.deadline, rank, entry.id))

    def first(self, live: dict[str, TaskEntry]) -> TaskEntry | None:
        """The task that goes next."""
        line, heap = self.line, self.heap
        while line and not _waits(line[0], live):
            line.popleft()
        while heap:
            entry = live.get(heap[0][2])
            if entry is None or entry.state != "ready":
                heapq.heappop(heap)
                continue
            if line and (line[0].deadline, line[0].order) < heap[0]:
                break
            return entry
        return line[0] if line else None

    def compact(self, live: dict[str, TaskEntry]) -> None:
        """Drop all that has moved on."""
        self.line = deque(entry for entry in self.line if _waits(entry, live))
        self.heap = sorted(
            {
                item
                for item in self.heap
                if (found := live.get(item[2])) is not None and found.state == "ready"
            }
        )


def _waits(entry: TaskEntry, live: dict[str, TaskEntry]) -> bool:
    """Whether an entry of a line still waits there; after an attempt it waits in the heap."""
    return entry.state == "ready" and not entry.attempt and live.get(entry.id) is entry


class Board(dict[str, Lane]):
    """Lanes of one pool and purpose by domain, and the order of those domains that may give a task.

    A domain is in `places` while it has a ready task and room of its own. Heap items that are not its key are leftovers.
    """

    __slots__ = ("heap", "places")

    def __init__(self) -> None:
        super().__init__()
        self.heap: list[Key] = []
        self.places: dict[str, Key] = {}

    def enter(self, domain: str, key: Key | None) -> None:
        """Give a domain its key, or none."""
        if key is None:
            self.places.pop(domain, None)
            return
        if self.places.get(domain) == key:
            return
        self.places[domain] = key
        heapq.heappush(self.heap, key)
        if len(self.heap) > 2 * len(self.places) + 64:
            self.heap = sorted(self.places.values())

    def first(self) -> Key | None:
        """The smallest key; None without any."""
        heap, places = self.heap, self.places
        while heap and places.get(heap[0][3]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None
