"""Dispatch on credits. Invariant: a lease is given only against free slots, within quota, and for training within pacing.

Evaluation tasks go first, but for what training is due beside them (`classes`); within each class the domain with the
smallest key gives its lane's head. Keys change only when something about their domain does (`refresh`), so a
decision costs a few steps in heaps, however many tasks and domains there are. What a domain owns is given before what any
borrows. A head that needs more than its pool has free holds what is released there until it fits; other pools go on.

What is decided follows from the records alone: boards, parked and passed-over domains are rebuilt from them at any time.
"""

from __future__ import annotations

from schemas.ids import lease_id
from schemas.tasks import Purpose
from services.scheduler.admission import train_allowance
from services.scheduler.boards import Board, Key
from services.scheduler.classes import charge_class, due, training
from services.scheduler.cohorts import Ledger, limits_of, sums, used
from services.scheduler.effects import Assign, Effect
from services.scheduler.lanes import Lane
from services.scheduler.moves import take
from services.scheduler.order import charge, rank, started_deadline
from services.scheduler.policies import Policies
from services.scheduler.quotas import Free, verifiable
from services.scheduler.records import TaskEntry
from services.scheduler.state import State


def dispatch(state: State, policies: Policies, now: float) -> list[Effect]:
    """Give out leases until slots, quotas, pacing or ready tasks run out."""
    refresh(state, policies)
    effects: list[Effect] = []
    if not any(board.places or board.large for board in state.lanes.values()):
        return effects
    pools = sorted({pool for pool, _ in state.lanes} - set(state.meta.drained))
    turn = state.meta.decisions % max(
        1, len(pools)
    )  # what pools share (pacing, verifiers) goes to no pool first for ever
    frees = {pool: Free(state, policies, pool, now) for pool in pools[turn:] + pools[:turn]}
    for (pool, _), board in state.lanes.items():
        if pool in frees:
            for domain in board.fitting(frees[pool].most):
                _enter(state, policies, domain)
    ledger = Ledger(state, policies)
    bound = verifiable(state, policies, now)
    _Serve(state, policies, ledger, effects, bound, now).all(frees)
    return effects


def refresh(state: State, policies: Policies) -> None:
    """Give every domain of which something has changed its key, on all its boards; wake cohorts that have something again."""
    known = sums(state, policies) if policies.cohorts else None
    state.touched |= state.waiting
    state.waiting.clear()
    for domain in state.touched:
        _enter(state, policies, domain)
    state.touched.clear()
    if known is not None:
        for cohort in known.reopened():
            for board in state.lanes.values():
                board.wake(cohort)


def _enter(state: State, policies: Policies, domain: str) -> None:
    for (_, purpose), board in state.lanes.items():
        lane = board.get(domain)
        if lane is not None:
            board.enter(domain, _key(state, policies, lane, purpose, domain) if lane.ready else None)


def _key(state: State, policies: Policies, lane: Lane, purpose: Purpose, domain: str) -> Key | None:
    """Key of a domain with ready tasks that may give one as far as it alone decides that; None for one that may not."""
    record = state.domains.get(domain)
    if record is not None and record.paused:
        return None
    borrows, cohort, policy = 0, "", policies.of(domain)
    if policy.cohort or (policy.nominal if record is None or record.nominal is None else record.nominal):
        limits = None if state.sums is None else state.sums.limits.get(domain)
        limits = limits or limits_of(state, policies, domain)
        entry = lane.first()
        wanted = used(state, domain) + (1 if entry is None else entry.slots)
        if wanted > limits.most:
            return None
        if wanted > limits.own:
            cohort = limits.cohort
            borrows = int(bool(cohort) and wanted > limits.nominal)
    exponent, mantissa = rank(record, policy, purpose, policies.half_life_s)
    return borrows, exponent, mantissa, domain, cohort


class _Serve:
    """One call of `dispatch`."""

    __slots__ = ("borrows", "bound", "effects", "ledger", "now", "policies", "state")

    def __init__(
        self,
        state: State,
        policies: Policies,
        ledger: Ledger,
        effects: list[Effect],
        bound: int | None,
        now: float,
    ) -> None:
        self.state, self.policies, self.ledger, self.effects = state, policies, ledger, effects
        self.bound, self.now = bound, now
        self.borrows = 0
        """1 once what domains own has been given, in all pools."""

    def all(self, frees: dict[str, Free]) -> None:
        """What domains own first, in all pools, then what they borrow."""
        for pool, free in frees.items():
            self.reserved(pool, free)
        for self.borrows in (0, 1):
            for pool, free in frees.items():
                if free.slots > 0 and not free.closed:
                    self.pool(pool, free)

    def pool(self, pool: str, free: Free) -> None:
        """Serve a pool: evaluation, with what training is due between, then training."""
        evals, trains = self.state.lanes.get((pool, "eval")), self.state.lanes.get((pool, "train"))
        if evals is not None and evals.places:
            while True:
                if trains is not None and self.due(pool) and self.board(pool, "train", trains, free, most=1):
                    continue
                if not self.board(pool, "eval", evals, free, most=1):
                    break
        if trains is not None and trains.places:
            self.board(pool, "train", trains, free)

    def due(self, pool: str) -> bool:
        """Whether training goes before evaluation now."""
        if pool not in self.state.meta.owed or not self.allowance("train"):
            return False
        return due(self.state, self.policies, pool, self.borrows)

    def reserved(self, pool: str, free: Free) -> None:
        """Serve the task that a pool's slots are held for, or hold on; not for one that cannot go for other reasons."""
        state = self.state
        held = state.meta.reserved.pop(pool, "")
        entry = state.live.get(held)
        if entry is None or entry.state != "ready" or entry.pool != pool or entry.slots > free.most:
            return
        board = state.lanes[pool, entry.purpose]
        if entry.domain not in board.places or not self.allowance(entry.purpose):
            return
        if self.ledger.fit(entry.domain, entry.slots) != "fits":
            return
        if free.fits(entry):
            self.lease(entry, free)
        else:
            state.meta.reserved[pool] = held
            free.closed = True

    def allowance(self, purpose: Purpose) -> float:
        """Attempts of a class that may be started now, apart from slots and quotas."""
        if self.bound is not None and self.state.members >= self.bound:
            return 0
        return float("inf") if purpose == "eval" else train_allowance(self.state, self.policies)

    def board(
        self, pool: str, purpose: Purpose, board: Board, free: Free, *, most: float = float("inf")
    ) -> int:
        """Serve the domains of one board in order, those that borrow only when it is their time; leases given, up to `most`."""
        state, ledger, bound = self.state, self.ledger, self.bound
        left, given = min(most, self.allowance(purpose)), 0
        while given < left and free.slots > 0 and not free.closed:
            key = board.first()
            if key is None or key[0] > self.borrows or (bound is not None and state.members >= bound):
                break
            domain, cohort = key[3:]
            if cohort and ledger.closed(cohort):
                board.park(cohort)
                continue
            entry = board[domain].first()
            if entry is None:
                board.enter(domain, None)
                continue
            if entry.slots > free.most:
                board.set_aside(domain, entry.slots)
                continue
            if cohort and (fit := ledger.fit(domain, entry.slots)) != "fits":
                if fit == "cohort":
                    board.park(cohort)
                else:
                    board.enter(domain, None)
                    state.waiting[domain] = None
                continue
            if not free.fits(entry):
                state.meta.reserved[pool] = entry.id
                free.closed = True
                break
            self.lease(entry, free)
            given += 1
        return given

    def lease(self, entry: TaskEntry, free: Free) -> None:
        """Give a lease."""
        state, policies, now = self.state, self.policies, self.now
        policy, meta = policies.of(entry.domain), state.meta
        timeouts = policy.timeouts
        waits = (
            entry.purpose == "eval"
            and training(state, entry.pool, self.borrows) is not None
            and not due(state, policies, entry.pool, self.borrows)
            and self.allowance("train") > 0
        )
        entry.attempt = attempt = entry.attempt + 1
        if attempt == 1:
            state.admit(now - entry.eligible_at)
            entry.deadline = started_deadline(entry.eligible_at, entry.priority)
        entry.lease_id = lease = lease_id(entry.id, attempt)
        entry.leased_at = now
        entry.results = ()
        entry.charged_s = 0.0
        charge(state, policies, entry, entry.estimate_s, now)
        if waits or meta.owed:
            charge_class(state, policies, entry, waits=waits)
        until = now + timeouts.lease_s
        announced = take(state, entry, "leased", now, due_at=until)
        meta.decisions += 1
        self.effects.append(
            Assign(
                lease_id=lease,
                lease_expires_at=until,
                lease_s=timeouts.lease_s,
                attempt_s=timeouts.attempt_s,
                body=entry.body,
                attempt=attempt,
                task_id=entry.id,
                group_size=entry.group_size,
                sampling=policy.sampling,
                pool=entry.pool,
                seq=meta.decisions,
                company=entry.company,
                trace=entry.trace,
            )
        )
        self.effects += announced
        free.give(entry)
        if policy.cohort:
            self.ledger.give(entry.domain)
        _enter(state, policies, entry.domain)
        del state.touched[entry.domain]
