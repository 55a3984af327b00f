"""The scheduler's state. Invariant: indexes (lanes, leases, timers) always agree with the entries they are derived from.

Only `place`, `lift` and `shift` touch the indexes, and an entry changes its state by them and by nothing else.
Records (`TaskEntry`, `Ended`, `Domain`, `Worker`, `Meta`) are what is stored; everything else is rebuilt from them.
The state is mutated in place by the fold, which is deterministic: equal states and equal inputs give equal states.
"""

from __future__ import annotations

import heapq
import math
import sys
from collections import deque
from collections.abc import Iterator

import msgspec

from schemas.grants import Line
from schemas.states import Cause
from schemas.states import State as TaskPhase
from schemas.tasks import Purpose
from services.scheduler.treasury import Treasury

HELD: frozenset[TaskPhase] = frozenset({"leased", "running"})
"""States in which an attempt occupies a slot."""
ACTIVE: frozenset[TaskPhase] = frozenset({"leased", "running", "verifying"})
"""States in which an attempt is under way."""


STARTED = 1 << 48
"""What a task that had an attempt is put before others by, at equal deadlines; more than there will be submissions."""
WAIT_BUCKETS = 24
"""Powers of two of a millisecond that waits are told apart by; the last holds all above 70 minutes."""


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The verdict on one member of the current attempt's group; `score` is None for `infra`."""

    index: int
    score: float | None
    passed: bool
    killed: bool = False
    """No verifier survived judging it."""


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far the verification of one member of the group has come."""

    index: int
    stages: int
    """Stages verified, passed or not."""
    passed: int
    snapshot: str = ""
    """Digest of the last good state."""


class TaskEntry(msgspec.Struct, kw_only=True, tag="live", gc=False):
    """A live task."""

    id: str
    domain: str
    purpose: Purpose
    pool: str
    body: bytes
    """The task in MessagePack, see `bodies`; the fold decodes it only when it makes another task of it."""
    content: bytes
    """Digest of what was submitted, to tell a duplicate from a conflict."""
    order: int
    """Number of the submission: the last tie-break."""
    group_size: int
    slots: int = 1
    """Slots that an attempt holds, fixed when it was admitted."""
    tokens: int = 0
    """Tokens that an attempt may sample at most, all members together."""
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
    timeouts: int = 0
    """Attempts that ran and did not finish in their time."""
    kills: int = 0
    """Losses of which it is known that the attempt ended its worker."""
    deaths: int = 0
    """Losses whose worker ended while it held the lease, whatever the cause."""
    origin: float = -1.0
    """Difficulty at the top of the ladder, for sub-tasks; negative where there is none."""
    climb: bool = False
    drained: bool = False
    """The attempt under way was given back by a worker that was told to stop."""
    given_up: bool = False
    """The attempt under way was given back unfinished."""
    progress: tuple[Progress, ...] = ()
    """By index, of the attempt under way."""
    children: tuple[str, ...] = ()
    """Sub-tasks that a waiting task waits for."""
    join: str = ""
    enough: float = 0.0
    """How the children's ends make its own, fixed when it began to wait."""
    cause: Cause = ""
    lease_id: str = ""
    worker: str = ""
    leased_at: float = 0.0
    charged_s: float = 0.0
    """Service seconds already charged to the domain for this attempt."""
    due_at: float = 0.0
    """Lease expiry, verification deadline or end of backoff, by state."""
    results: tuple[Result, ...] = ()
    reason: str = ""
    updated_at: float = 0.0


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended", gc=False):
    """A terminal task: what recognises duplicates and answers questions."""

    id: str
    domain: str
    purpose: Purpose
    state: TaskPhase
    content: bytes
    key: str = ""
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    timeouts: int = 0
    level: int = 0
    score: float | None = None
    reason: str = ""
    cause: Cause = ""
    parent: str = ""
    batch: str = ""
    children: tuple[str, ...] = ()
    eligible_at: float = 0.0
    ended_at: float = 0.0


class Share(msgspec.Struct, array_like=True, gc=False):
    """Decayed service seconds, as of a time."""

    usage: float = 0.0
    at: float = 0.0


class Evidence(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a domain's complete training groups have shown; running averages, see `mix`."""

    groups: int = 0
    """How many there were."""
    mean: float = 0.0
    """Mean score."""
    variance: float = 0.0
    """Unbiased variance of the scores within a group."""
    informative: float = 0.0
    """Share of groups whose scores differ, the only ones that teach."""
    cost_s: float = 0.0
    """Service seconds charged for a group."""
    recent: float = 0.0
    """Informative groups, halved every `mix.HALF_LIFE` groups of all domains."""
    at: int = 0
    """Groups of all domains when `recent` was reckoned."""


class Domain(msgspec.Struct, kw_only=True):
    """What the fold has learnt about a domain."""

    name: str
    paused: bool = False
    nominal: int | None = None
    """Quota set by an event; None keeps the card's."""
    borrow: int | None = None
    """Likewise, what it may use of others in its cohort."""
    lend: int | None = None
    """Likewise, what others may use of it."""
    refused: str = ""
    """Why the last control that was refused was; empty after one that was not."""
    estimate_s: float = 0.0
    """Rolling median of service seconds; 0 until the first attempt ended."""
    seconds: list[float] = []
    shares: dict[str, Share] = {}
    """By purpose."""
    ended: dict[str, int] = {}
    """Terminal tasks by state."""
    rung: int = 0
    """Level that failing tasks go to first, see `degrade`; 0 and 1 are the top rung."""
    rungs: dict[str, list[bool]] = {}
    """Recent measured ends of sub-tasks by level, newest last."""
    mix: float = 1.0
    """Factor on the card's weight, set by mixed sampling."""
    evidence: Evidence = Evidence()


class Worker(msgspec.Struct, kw_only=True):
    """A worker by its last heartbeat."""

    name: str
    service: str
    pool: str = ""
    slots: int = 0
    tokens: int = 0
    """Tokens it can hold at a time; 0: no limit."""
    draining: bool = False
    policy_version: int = -1
    seen_at: float = 0.0
    started_at: float = 0.0
    """Of the process that sent the last heartbeat."""


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
    observed: int = 0
    """Training groups that mixed sampling has taken into a domain's evidence."""
    mixed: int = 0
    """Decisions taken when mixed sampling set its factors last."""
    version: int = 0
    final: bool = False
    closed: list[str] = []
    """Batch labels that were cancelled, in the order of their cancellation: later tasks with them end at once."""
    drained: list[str] = []
    """Pools that get no new leases, by name."""
    reserved: dict[str, str] = {}
    """Pool -> the task that needs more than was free and is waited for."""
    counters: dict[str, int] = {}
    """Events that changed nothing, by cause."""
    grant: int = 0
    """Number of the grant that is obeyed; this and what follows is used with more than one shard only."""
    credits: dict[str, int] = {}
    """Units of each resource that the grant gives this shard."""
    told: dict[str, Line] = {}
    """The newest report."""
    told_weight: float = 0.0
    told_grant: int = 0
    told_at: float = 0.0
    owes: bool = False
    """A report or a grant had to wait."""
    granted_at: float = 0.0
    treasury: Treasury | None = None
    """Shard 0 keeps it."""
    evicted: dict[str, int] = {}
    """Attempts that ended without a result, by reason."""
    waits: list[int] = []
    """Tasks that waited for their first lease less than 2 ** n milliseconds and at least half of that, by n."""


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


class State:
    """Records and the indexes over them."""

    __slots__ = (
        "active",
        "batches",
        "changed",
        "domains",
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
        "phases",
        "scheduled",
        "timers",
        "touched",
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
        self.leases: dict[str, str] = {}
        self.occupied: dict[str, Leases] = {}
        """Pool -> leases that hold slots."""
        self.held: dict[str, Leases] = {}
        """Domain -> leases that hold slots."""
        self.members = 0
        """Samples of all attempts under way: what verifiers have or will have to do."""
        self.active: set[str] = set()
        self.batches: dict[str, set[str]] = {}
        self.expected: dict[str, str] = {}
        """Sub-task -> the live task that waits for it."""
        self.lanes: dict[tuple[str, Purpose], Board] = {}
        self.touched: dict[str, None] = {}
        """Domains of which something has changed that decides about their place; the next dispatch looks at them."""
        self.waiting: dict[str, None] = {}
        """Domains that the last dispatch passed over for reasons that lie with others."""
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
        bucket = math.frexp(waited_s * 1000.0)[1] if waited_s > 0.0 else 0
        bucket = 0 if bucket < 0 else bucket if bucket < WAIT_BUCKETS else WAIT_BUCKETS - 1
        while len(waits) <= bucket:
            waits.append(0)
        waits[bucket] += 1

    def domain(self, name: str) -> Domain:
        """The domain's record, made on first use and marked changed: whoever changes it comes through here."""
        found = self.domains.get(name)
        if found is None:
            found = self.domains[name] = Domain(name=name)
        self.changed.add("domain:" + name)
        self.touched[name] = None
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
    if entry.batch:
        entry.batch = sys.intern(entry.batch)
        state.batches.setdefault(entry.batch, set()).add(entry.id)
    state.live[entry.id] = entry
    state.changed.add("task:" + entry.id)
    _enter(state, entry)


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
    _leave(state, entry)


def shift(state: State, entry: TaskEntry, phase: TaskPhase, now: float, *, due_at: float = 0.0) -> None:
    """Take a placed entry to another live state: `lift`, assignment and `place` in one, without leaving `live` between."""
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
        if len(lane.heap) + len(lane.line) > 2 * lane.ready + 64:
            lane.compact(state.live)
        return
    set_timer(state, entry)
    if phase == "waiting":
        for child in entry.children:
            state.expected[child] = entry.id
    elif phase in ACTIVE:
        lease = entry.lease_id
        state.leases[lease] = entry.id
        state.members += entry.group_size
        if entry.purpose == "train":
            state.active.add(entry.id)
        if phase in HELD:
            _leases(state.occupied, entry.pool).hold(lease, entry.slots, entry.tokens)
            _leases(state.held, entry.domain).hold(lease, entry.slots, entry.tokens)


def _leave(state: State, entry: TaskEntry) -> None:
    phase = entry.state
    state.phases[phase] -= 1
    if phase == "ready":
        state.touched[entry.domain] = None
        state.lane(entry).ready -= 1
    elif phase == "waiting":
        for child in entry.children:
            del state.expected[child]
    elif phase in ACTIVE:
        lease = entry.lease_id
        del state.leases[lease]
        state.members -= entry.group_size
        state.active.discard(entry.id)
        if phase in HELD:
            state.touched[entry.domain] = None
            state.occupied[entry.pool].release(lease)
            state.held[entry.domain].release(lease)


def _leases(index: dict[str, Leases], name: str) -> Leases:
    found = index.get(name)
    if found is None:
        found = index[name] = Leases()
    return found


def head(state: State, lane: Lane) -> TaskEntry | None:
    """First ready task of a lane."""
    return lane.first(state.live)


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
