"""Where ready tasks wait and leases are counted. Invariant: sums and orders here are those of the entries put in.

Derived from the records, never stored.
"""

from __future__ import annotations

import heapq
from collections import deque

from services.scheduler.records import TaskEntry

STARTED = 1 << 48
"""What a task that had an attempt is put before others by, at equal deadlines; more than there will be submissions."""
RUN = 64
"""Entries a heap holds before they become a run: an item of a heap takes ten times the memory of a place in a run."""
Rank = tuple[float, int]
"""Place of a task in its lane, smallest first; no two tasks have the same."""


def rank_of(entry: TaskEntry) -> Rank:
    """(deadline, submission), with started work before other of the same deadline."""
    return entry.deadline, entry.order - STARTED if entry.attempt else entry.order


class Occupancy:
    """How many leases hold slots of a pool or for a domain, and what they hold together."""

    __slots__ = ("leases", "slots", "tokens")

    def __init__(self) -> None:
        self.leases = self.slots = self.tokens = 0

    def hold(self, entry: TaskEntry) -> None:
        """Count an attempt that is not counted."""
        self.leases += 1
        self.slots += entry.slots
        self.tokens += entry.tokens

    def release(self, entry: TaskEntry) -> None:
        """Count it no more."""
        self.leases -= 1
        self.slots -= entry.slots
        self.tokens -= entry.tokens


class Lane:
    """Ready tasks of one pool, purpose and domain, by `rank_of`.

    Most come in the order in which they go: these wait in a line. The others, and all that had an attempt, wait in a heap,
    and once that is full in runs, each in order. What has moved on is dropped when it comes up.
    """

    __slots__ = ("heap", "kept", "line", "made", "ready", "runs")

    def __init__(self) -> None:
        self.line: deque[TaskEntry] = deque()
        self.heap: list[tuple[float, int, TaskEntry]] = []
        self.runs: list[tuple[float, int, int, list[TaskEntry]]] = []
        """A heap of runs by their next entry: its rank, the run's number, its entries with the next one last."""
        self.made = 0
        """Runs so far."""
        self.kept = 0
        """Entries here, those included that have moved on."""
        self.ready = 0

    def add(self, entry: TaskEntry) -> None:
        """Take a ready task in."""
        self.ready += 1
        self.kept += 1
        if not entry.attempt:
            line = self.line
            if not line or (line[-1].deadline, line[-1].order) < (entry.deadline, entry.order):
                line.append(entry)
                return
        heapq.heappush(self.heap, (*rank_of(entry), entry))
        if len(self.heap) >= RUN:
            self._run()

    def first(self) -> TaskEntry | None:
        """The task that goes next."""
        line, heap = self.line, self.heap
        found: TaskEntry | None = None
        while line:
            found = line[0]
            if found.state == "ready" and not found.attempt:
                break
            line.popleft()
            self.kept -= 1
            found = None
        if not heap and not self.runs:
            return found
        while heap and heap[0][2].state != "ready":
            heapq.heappop(heap)
            self.kept -= 1
        best: Rank | None = None if found is None else (found.deadline, found.order)
        if heap:
            deadline, order, entry = heap[0]
            if best is None or (deadline, order) < best:
                best, found = (deadline, order), entry
        if self.runs:
            waits = self._next_of_runs()
            if waits is not None:
                deadline, order = self.runs[0][:2]
                if best is None or (deadline, order) < best:
                    return waits
        return found

    def compact(self) -> None:
        """Drop all that has moved on."""
        kept = {entry.id: entry for *_, run in self.runs for entry in run if entry.state == "ready"}
        kept |= {entry.id: entry for *_, entry in self.heap if entry.state == "ready"}
        self.line = deque(entry for entry in self.line if _waits(entry) and entry.id not in kept)
        self.heap, self.runs = [(*rank_of(entry), entry) for entry in kept.values()], []
        self.kept = len(self.line) + len(self.heap)
        if len(self.heap) >= RUN:
            self._run()
        else:
            heapq.heapify(self.heap)

    def _run(self) -> None:
        """Make a run of the heap."""
        self.heap.sort(key=_place, reverse=True)
        run = [entry for *_, entry in self.heap]
        self.made += 1
        heapq.heappush(self.runs, (*self.heap[-1][:2], self.made, run))
        self.heap = []

    def _next_of_runs(self) -> TaskEntry | None:
        """The first of the entries in runs that still waits; what has moved on before it is dropped."""
        runs = self.runs
        while runs:
            _, _, number, run = runs[0]
            entry = run[-1]
            if entry.state == "ready":
                return entry
            run.pop()
            self.kept -= 1
            while run and run[-1].state != "ready":
                run.pop()
                self.kept -= 1
            if run:
                heapq.heapreplace(runs, (*rank_of(run[-1]), number, run))
            else:
                heapq.heappop(runs)
        return None


def _place(item: tuple[float, int, TaskEntry]) -> Rank:
    return item[:2]


def _waits(entry: TaskEntry) -> bool:
    """Whether an entry of a line still waits there; after an attempt it waits in the heap."""
    return not entry.attempt and entry.state == "ready"
