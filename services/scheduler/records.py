"""What is stored of the scheduler's state. Invariant: everything else in it can be rebuilt from these records.

`TaskEntry` or `Ended` for each task, `Domain`, `Worker`, and `Meta` for the whole.
"""

from __future__ import annotations

import msgspec

from schemas.grants import Line
from schemas.states import Cause
from schemas.states import State as TaskPhase
from schemas.tasks import Purpose
from services.scheduler.treasury import Treasury

HELD: frozenset[TaskPhase] = frozenset({"leased", "running"})
"""States in which an attempt occupies a slot."""
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


class Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a sub-task came to that has been forgotten while its parent still waits for others."""

    id: str
    state: TaskPhase
    score: float | None = None


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
    """Tokens that an attempt may hold at most, all members together; see `cohorts.tokens_of`."""
    kind: str = ""
    """What its estimate was asked for; see `estimates`."""
    priority: int = 0
    key: str = ""
    parent: str = ""
    level: int = 0
    batch: str = ""
    trace: str = ""
    eligible_at: float = 0.0
    """When the task could first be dispatched; kept over retries, inherited by sub-tasks."""
    estimate_s: float = 0.0
    """Seconds that an attempt is expected to hold a slot, as known when the task came in; frozen."""
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
    spared: int = 0
    """Attempts that ended with a worker whose end was not their doing for all that is known; they cost no budget."""
    suspicion: float = 0.0
    """Its part in losses that it shares with others, 1/n of each; a whole one counts as a loss. See `blame`."""
    company: int = 0
    """Groups that may be in an engine with it, itself included, while it is under suspicion; 0: any number."""
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
    past: tuple[Past, ...] = ()
    """Those of them that ended and have been forgotten."""
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
    number: int = 0
    """In the order in which they ended."""
    age: float = 0.0
    """The fold's age then; see `forget`."""


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An idempotency key that is at home here, of another shard's task."""

    key: str
    task: str
    content: bytes
    number: int
    """In the order in which they were claimed."""
    age: float = 0.0
    """The fold's age then."""


class Pending(msgspec.Struct, kw_only=True, gc=False):
    """A submission that is held back until its key's home has answered."""

    id: str
    domain: str
    key: str
    body: bytes
    """The submission in MessagePack."""
    content: bytes
    at: float
    trace: str = ""
    cause: Cause = ""
    reason: str = ""
    """Why it will be refused unless it is a repeat; empty if it will be admitted."""
    withdrawn: str = ""
    """Why it was cancelled meanwhile."""


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


class Kind(msgspec.Struct, array_like=True, gc=False):
    """What attempts at one kind of a domain's tasks have taken."""

    estimate_s: float = 0.0
    """Rolling median of `seconds`."""
    seen: int = 0
    """Attempts of the domain when one of this kind ended last."""
    seconds: list[float] = []


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
    unproven: str = ""
    """What could not be checked when its quota was set; empty if nothing, or if none was set."""
    estimate_s: float = 0.0
    """Rolling median of service seconds; 0 until the first attempt ended."""
    seconds: list[float] = []
    observed: int = 0
    """Attempts whose service seconds were taken in."""
    kinds: dict[str, Kind] = {}
    """The same by kind of task, a bounded number; see `estimates`."""
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
    pid: int = 0
    """Likewise; 0: not said."""
    holds: int = 0
    """Leases that it named then."""
    engine: tuple[str, ...] = ()
    """Leases in its engine, where that is known for sure: one of them is under suspicion, so that no other begins unsaid."""


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
    claimed: int = 0
    """Keys of other shards' tasks that this shard has given out."""
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
    owed: dict[str, float] = {}
    """Pool -> slot seconds that training is owed there; see `classes`."""
    counters: dict[str, int] = {}
    """Events that changed nothing, by cause."""
    grant: int = 0
    """Number of the grant that is obeyed; this and what follows is used with more than one shard only."""
    credits: dict[str, int] = {}
    """Units of each resource that the grant gives this shard."""
    told: dict[str, Line] = {}
    """The newest report."""
    told_weight: float = 0.0
    told_decisions: int = 0
    told_mixing: int = 0
    """Decisions when the evidence was reported last."""
    told_domains: int = 0
    """Checksum of the names of the domains in that report."""
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
    ends: int = 0
    """Tasks that have ended: the number of the newest end."""
    age: float = 0.0
    """Seconds of the fold's clock without its jumps; see `forget`."""
