"""The scheduler's state. Invariant: indexes (lanes, leases, timers) always agree with the entries they are derived from.

Only `place`, `lift` and `shift` touch the indexes, and an entry changes its state by them and by nothing else.
Records (records.py) are what is stored; everything else is rebuilt from them.
The state is mutated in place by the fold, which is deterministic: equal states and equal inputs give equal states.
"""

from __future__ import annotations

import heapq
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from schemas.states import UNDER_WAY
from schemas.states import State as TaskPhase
from schemas.tasks import Purpose
from services.scheduler.boards import Board
from services.scheduler.lanes import Lane, Occupancy
from services.scheduler.records import (
    HELD,
    WAIT_BUCKETS,
    Claim,
    Domain,
    Ended,
    Meta,
    Pending,
    TaskEntry,
    Worker,
)

if TYPE_CHECKING:
    from services.scheduler.cohorts import Sums


class State:
    """Records and the indexes over them."""

    __slots__ = (
        "batches",
        "changed",
        "claimed",
        "claims",
        "domains",
        "done",
        "ended",
        "expected",
        "held",
        "keys",
        "lanes",
        "leases",
        "live",
        "members",
        "meta",
        "occupied",
        "pending",
        "pending_in",
        "phases",
        "refused",
        "scheduled",
        "stirred",
        "sums",
        "timers",
        "touched",
        "training",
        "waiting",
        "workers",
    )

    def __init__(self) -> None:
        self.live: dict[str, TaskEntry] = {}
        self.ended: dict[str, Ended] = {}
        self.domains: dict[str, Domain] = {}
        self.workers: dict[str, Worker] = {}
        self.meta = Meta()
        self.keys: dict[str, str] = {}
        self.claims: dict[str, Claim] = {}
        """Keys at home here of other shards' tasks, oldest first; this and the next are used with more than one shard only."""
        self.claimed: deque[str] = deque()
        """Their keys in the same order."""
        self.done: deque[str] = deque()
        """Terminal tasks that were admitted, the oldest end first."""
        self.refused: deque[str] = deque()
        """Rejected ones, likewise."""
        self.pending: dict[str, Pending] = {}
        self.pending_in: dict[str, int] = {}
        """Domain -> submissions of it that are held back."""
        self.leases: dict[str, str] = {}
        """Lease -> task, of all attempts under way, the first that was given first."""
        self.occupied: defaultdict[str, Occupancy] = defaultdict(Occupancy)
        """Pool -> what leases hold of it."""
        self.held: defaultdict[str, Occupancy] = defaultdict(Occupancy)
        """Domain -> what its leases hold."""
        self.members = 0
        """Samples of all attempts under way: what verifiers have or will have to do."""
        self.training = 0
        """Training groups under way."""
        self.batches: dict[str, set[str]] = {}
        self.expected: dict[str, str] = {}
        """Sub-task -> the live task that waits for it."""
        self.lanes: dict[tuple[str, Purpose], Board] = {}
        self.touched: dict[str, None] = {}
        """Domains of which something has changed that decides about their place; the next dispatch looks at them."""
        self.waiting: dict[str, None] = {}
        """Domains that the last dispatch passed over for reasons that lie with others."""
        self.stirred: dict[str, None] = {}
        """Domains whose leases or limits have changed since the sums of cohorts were brought up to date."""
        self.sums: Sums | None = None
        """Those sums; `cohorts` makes and reads them."""
        self.phases: dict[TaskPhase, int] = {}
        """Live tasks by state."""
        self.timers: list[tuple[float, int, str]] = []
        self.scheduled: dict[str, float] = {}
        self.changed: set[str] = set()

    def count(self, cause: str) -> None:
        """Count an event that changed nothing."""
        counters = self.meta.counters
        counters[cause] = counters.get(cause, 0) + 1

    def evict(self, reason: str) -> None:
        """Count an attempt that ended without a result, by why it did."""
        evicted = self.meta.evicted
        evicted[reason] = evicted.get(reason, 0) + 1

    def admit(self, waited_s: float) -> None:
        """Count a task that got its first lease after `waited_s`, in its power of two of milliseconds."""
        waits = self.meta.waits
        bucket = int(waited_s * 1000.0).bit_length() if waited_s > 0.0 else 0
        if bucket >= WAIT_BUCKETS:
            bucket = WAIT_BUCKETS - 1
        if bucket >= len(waits):
            waits += [0] * (bucket + 1 - len(waits))
        waits[bucket] += 1

    def domain(self, name: str) -> Domain:
        """The domain's record, made on first use and marked changed: whoever changes it comes through here."""
        found = self.domains.get(name)
        if found is None:
            found = self.domains[name] = Domain(name=name)
        self.changed.add("domain:" + name)
        self.touched[name] = None
        self.stirred[name] = None
        return found

    def lane(self, entry: TaskEntry) -> Lane:
        """The lane an entry waits in."""
        board = self.lanes.get((entry.pool, entry.purpose))
        if board is None:
            board = self.lanes[entry.pool, entry.purpose] = Board()
        found = board.get(entry.domain)
        if found is None:
            found = board[entry.domain] = Lane()
        return found

    def ready_in(self, domain: str) -> int:
        """Ready tasks of a domain, all pools and purposes."""
        return sum(lanes[domain].ready for lanes in self.lanes.values() if domain in lanes)


def place(state: State, entry: TaskEntry) -> None:
    """Put an entry under all indexes; equal strings are kept once, however the entry was decoded."""
    entry.domain, entry.pool = sys.intern(entry.domain), sys.intern(entry.pool)
    entry.kind = sys.intern(entry.kind)
    if entry.batch:
        entry.batch = sys.intern(entry.batch)
        state.batches.setdefault(entry.batch, set()).add(entry.id)
    state.live[entry.id] = entry
    state.changed.add("task:" + entry.id)
    _enter(state, entry)


def lift(state: State, entry: TaskEntry, phase: TaskPhase) -> None:
    """End an entry: take it out of all indexes. Its terminal state tells whoever still has it, as lanes may."""
    del state.live[entry.id]
    state.changed.add("task:" + entry.id)
    if entry.batch:
        members = state.batches[entry.batch]
        members.discard(entry.id)
        if not members:
            del state.batches[entry.batch]
    state.scheduled.pop(entry.id, None)
    _leave(state, entry)
    entry.state = phase


def shift(state: State, entry: TaskEntry, phase: TaskPhase, now: float, *, due_at: float = 0.0) -> None:
    """Take a placed entry to another live state."""
    _leave(state, entry)
    entry.state = phase
    entry.due_at = due_at
    entry.updated_at = now
    state.changed.add("task:" + entry.id)
    _enter(state, entry)


def _enter(state: State, entry: TaskEntry) -> None:
    phase = entry.state
    phases = state.phases
    phases[phase] = phases.get(phase, 0) + 1
    if phase == "ready":
        state.scheduled.pop(entry.id, None)
        state.touched[entry.domain] = None
        lane = state.lane(entry)
        lane.add(entry)
        if lane.kept > 2 * lane.ready + 64:
            lane.compact()
        return
    set_timer(state, entry)
    if phase == "waiting":
        for child in entry.children:
            state.expected[child] = entry.id
    elif phase in UNDER_WAY:
        state.leases[entry.lease_id] = entry.id
        state.members += entry.group_size
        if entry.purpose == "train":
            state.training += 1
        if phase in HELD:
            state.stirred[entry.domain] = None
            state.occupied[entry.pool].hold(entry)
            state.held[entry.domain].hold(entry)


def _leave(state: State, entry: TaskEntry) -> None:
    phase = entry.state
    state.phases[phase] -= 1
    if phase == "ready":
        state.touched[entry.domain] = None
        state.lanes[entry.pool, entry.purpose][entry.domain].ready -= 1
    elif phase == "waiting":
        for child in entry.children:
            del state.expected[child]
    elif phase in UNDER_WAY:
        del state.leases[entry.lease_id]
        state.members -= entry.group_size
        if entry.purpose == "train":
            state.training -= 1
        if phase in HELD:
            state.touched[entry.domain] = state.stirred[entry.domain] = None
            state.occupied[entry.pool].release(entry)
            state.held[entry.domain].release(entry)


def under_way(state: State) -> Iterator[TaskEntry]:
    """Tasks of which an attempt is under way, the first that was given a lease first."""
    return (state.live[task_id] for task_id in state.leases.values())


def set_timer(state: State, entry: TaskEntry) -> None:
    """Schedule an entry's `due_at`; one valid heap item a task, moved later only when it comes up."""
    scheduled = state.scheduled.get(entry.id)
    if scheduled is None or entry.due_at < scheduled:
        state.scheduled[entry.id] = entry.due_at
        heapq.heappush(state.timers, (entry.due_at, entry.order, entry.id))


def due(state: State, now: float) -> Iterator[TaskEntry]:
    """Entries whose time has come, in order of (due_at, order); the caller moves each on before taking the next."""
    while state.timers and state.timers[0][0] <= now:
        when, _, task_id = heapq.heappop(state.timers)
        if state.scheduled.get(task_id) != when:
            continue
        del state.scheduled[task_id]
        entry = state.live[task_id]
        if entry.due_at > when:
            set_timer(state, entry)
            continue
        yield entry


def next_due(state: State) -> float | None:
    """Earliest time at which a timer may come up, None without timers."""
    while state.timers and state.scheduled.get(state.timers[0][2]) != state.timers[0][0]:
        heapq.heappop(state.timers)
    return state.timers[0][0] if state.timers else None
