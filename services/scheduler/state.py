"""The scheduler's state. Invariant: indexes (lanes, leases, timers) always agree with the entries they are derived from.

Only `place` and `lift` touch the indexes, so an entry changes its state by `lift`, assignment, `place` and by nothing else.
Records (`TaskEntry`, `Ended`, `Domain`, `Worker`, `Meta`) are what is stored; everything else is rebuilt from them.
The state is mutated in place by the fold, which is deterministic: equal states and equal inputs give equal states.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from schemas.states import State as TaskPhase
from schemas.tasks import Purpose

HELD: frozenset[TaskPhase] = frozenset({"leased", "running"})
"""States in which an attempt occupies a slot."""
ACTIVE: frozenset[TaskPhase] = frozenset({"leased", "running", "verifying"})
"""States in which an attempt is under way."""


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The verdict on one member of the current attempt's group; `score` is None for `infra`."""

    index: int
    score: float | None
    passed: bool


class TaskEntry(msgspec.Struct, kw_only=True, tag="live", gc=False):
    """A live task."""

    id: str
    domain: str
    purpose: Purpose
    pool: str
    body: bytes
    """The task in MessagePack; decoded only when it is dispatched."""
    content: str
    """Digest of what was submitted, to tell a duplicate from a conflict."""
    order: int
    """Number of the submission: the last tie-break."""
    group_size: int
    priority: int = 0
    key: str = ""
    parent: str = ""
    level: int = 0
    batch: str = ""
    trace: str = ""
    eligible_at: float = 0.0
    """When the task could first be dispatched; kept over retries, inherited by sub-tasks."""
    estimate_s: float = 0.0
    """The domain's estimate when the task became ready, frozen."""
    deadline: float = 0.0
    """Virtual deadline; see `order.virtual_deadline`."""
    state: TaskPhase = "ready"
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    drains: int = 0
    """Attempts given back by a draining worker; they cost no budget."""
    lease_id: str = ""
    worker: str = ""
    leased_at: float = 0.0
    charged_s: float = 0.0
    """Service seconds already charged to the domain for this attempt."""
    due_at: float = 0.0
    """Lease expiry, verification deadline or end of backoff, by state."""
    results: list[Result] = []
    reason: str = ""
    updated_at: float = 0.0


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", gc=False):
    """A terminal task: what recognises duplicates and answers questions."""

    id: str
    domain: str
    purpose: Purpose
    state: TaskPhase
    content: str
    key: str = ""
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    score: float | None = None
    reason: str = ""
    parent: str = ""
    batch: str = ""
    children: tuple[str, ...] = ()
    eligible_at: float = 0.0
    ended_at: float = 0.0


class Share(msgspec.Struct, array_like=True, gc=False):
    """Decayed service seconds, as of a time."""

    usage: float = 0.0
    at: float = 0.0


class Domain(msgspec.Struct, kw_only=True):
    """What the fold has learnt about a domain."""

    name: str
    paused: bool = False
    nominal: int | None = None
    """Quota set by an event; None keeps the card's."""
    estimate_s: float = 0.0
    """Rolling median of service seconds; 0 until the first attempt ended."""
    seconds: list[float] = []
    shares: dict[str, Share] = {}
    """By purpose."""
    ended: dict[str, int] = {}
    """Terminal tasks by state."""


class Worker(msgspec.Struct, kw_only=True):
    """A worker by its last heartbeat."""

    name: str
    service: str
    pool: str = ""
    slots: int = 0
    draining: bool = False
    policy_version: int = -1
    seen_at: float = 0.0


class Meta(msgspec.Struct, kw_only=True):
    """Counters and positions of the whole."""

    seq: int = 0
    epoch: int = 0
    now: float = 0.0
    offsets: dict[str, int] = {}
    """`topic/partition` -> next offset to fold."""
    policies: str = ""
    submitted: int = 0
    ended: dict[str, int] = {}
    orders: int = 0
    decisions: int = 0
    accepted: int = 0
    """Training groups that ended usable and complete (AReaL's `accepted`)."""
    version: int = 0
    final: bool = False
    closed: list[str] = []
    """Batch labels that were cancelled, in the order of their cancellation: later tasks with them end at once."""
    counters: dict[str, int] = {}
    """Events that changed nothing, by cause."""


class Lane:
    """Ready tasks of one pool, purpose and domain: a heap with lazy deletion."""

    __slots__ = ("heap", "ready")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, str]] = []
        self.ready = 0


class State:
    """Records and the indexes over them."""

    __slots__ = (
        "active",
        "batches",
        "changed",
        "domains",
        "ended",
        "held",
        "keys",
        "lanes",
        "leases",
        "live",
        "meta",
        "occupied",
        "scheduled",
        "timers",
        "workers",
    )

    def __init__(self) -> None:
        self.live: dict[str, TaskEntry] = {}
        self.ended: dict[str, Ended] = {}
        self.domains: dict[str, Domain] = {}
        self.workers: dict[str, Worker] = {}
        self.meta = Meta()
        self.keys: dict[str, str] = {}
        self.leases: dict[str, str] = {}
        self.occupied: dict[str, set[str]] = {}
        self.held: dict[str, set[str]] = {}
        self.active: set[str] = set()
        self.batches: dict[str, set[str]] = {}
        self.lanes: dict[tuple[str, Purpose], dict[str, Lane]] = {}
        self.timers: list[tuple[float, int, str]] = []
        self.scheduled: dict[str, float] = {}
        self.changed: set[str] = set()

    def count(self, cause: str) -> None:
        """Count an event that changed nothing."""
        counters = self.meta.counters
        counters[cause] = counters.get(cause, 0) + 1

    def domain(self, name: str) -> Domain:
        """The domain's record, made on first use and marked changed."""
        found = self.domains.get(name)
        if found is None:
            found = self.domains[name] = Domain(name=name)
        self.changed.add("domain:" + name)
        return found

    def lane(self, entry: TaskEntry) -> Lane:
        """The lane an entry waits in."""
        lanes = self.lanes.setdefault((entry.pool, entry.purpose), {})
        found = lanes.get(entry.domain)
        if found is None:
            found = lanes[entry.domain] = Lane()
        return found

    def ready_in(self, domain: str) -> int:
        """Ready tasks of a domain, all pools and purposes."""
        return sum(lanes[domain].ready for lanes in self.lanes.values() if domain in lanes)


def place(state: State, entry: TaskEntry) -> None:
    """Put an entry under the indexes its state belongs to."""
    state.live[entry.id] = entry
    state.changed.add("task:" + entry.id)
    if entry.batch:
        state.batches.setdefault(entry.batch, set()).add(entry.id)
    if entry.state == "ready":
        lane = state.lane(entry)
        lane.ready += 1
        heapq.heappush(lane.heap, (entry.deadline, entry.order, entry.id))
        if len(lane.heap) > 2 * lane.ready + 64:
            _compact(state, lane)
        return
    set_timer(state, entry)
    if entry.state in ACTIVE:
        state.leases[entry.lease_id] = entry.id
        if entry.purpose == "train":
            state.active.add(entry.id)
        if entry.state in HELD:
            state.occupied.setdefault(entry.pool, set()).add(entry.lease_id)
            state.held.setdefault(entry.domain, set()).add(entry.lease_id)


def lift(state: State, entry: TaskEntry) -> None:
    """Take an entry out of all indexes; the caller places it again or ends it."""
    del state.live[entry.id]
    state.changed.add("task:" + entry.id)
    if entry.batch:
        members = state.batches[entry.batch]
        members.discard(entry.id)
        if not members:
            del state.batches[entry.batch]
    state.scheduled.pop(entry.id, None)
    if entry.state == "ready":
        state.lane(entry).ready -= 1
    elif entry.state in ACTIVE:
        del state.leases[entry.lease_id]
        state.active.discard(entry.id)
        if entry.state in HELD:
            state.occupied[entry.pool].discard(entry.lease_id)
            state.held[entry.domain].discard(entry.lease_id)


def head(state: State, lane: Lane) -> TaskEntry | None:
    """First ready task of a lane, dropping heap items whose entry has moved on."""
    while lane.heap:
        entry = state.live.get(lane.heap[0][2])
        if entry is not None and entry.state == "ready":
            return entry
        heapq.heappop(lane.heap)
    return None


def _compact(state: State, lane: Lane) -> None:
    ready = {
        item
        for item in lane.heap
        if (found := state.live.get(item[2])) is not None and found.state == "ready"
    }
    lane.heap = sorted(ready)


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
