"""Quotas and credits. Invariant: occupancy is the set of unexpired leases; its sums change with it alone."""

from __future__ import annotations

from services.scheduler.cohorts import NO_LIMIT, limits_of, spare, used
from services.scheduler.policies import Policies
from services.scheduler.records import TaskEntry, Worker
from services.scheduler.state import State


def gives_credits(worker: Worker, policies: Policies, now: float) -> bool:
    """Whether a worker's slots count."""
    return (
        worker.service == "sampler"
        and not worker.draining
        and now - worker.seen_at < policies.worker_timeout_s
    )


def free_slots(state: State, policies: Policies, pool: str, now: float) -> int:
    """Slots of live workers of a pool less those that leases hold, at least 0."""
    return Free(state, policies, pool, now).slots


def room(state: State, policies: Policies, domain: str) -> float:
    """Slots a domain may still take; infinite without a quota, 0 while it is paused."""
    record = state.domains.get(domain)
    if record is not None and record.paused:
        return 0
    limits = limits_of(state, policies, domain)
    if not limits.cohort:
        return max(0, limits.most - used(state, domain)) if limits.nominal else NO_LIMIT
    left = limits.most - used(state, domain)
    own = max(0, limits.own - used(state, domain))
    return max(0, min(left, own + max(0, spare(state, policies, limits.cohort))))


def verifiable(state: State, policies: Policies, now: float) -> int | None:
    """Samples that may be under way at a time, so that verifiers keep up; None while no verifier has reported slots."""
    slots = sum(
        worker.slots
        for worker in state.workers.values()
        if worker.service == "verifier" and now - worker.seen_at < policies.worker_timeout_s
    )
    return slots * policies.verify_backlog if slots and policies.verify_backlog else None


class Free:
    """What a pool's live workers have left."""

    __slots__ = ("closed", "slots", "tokens", "whole")

    def __init__(self, state: State, policies: Policies, pool: str, now: float) -> None:
        workers = [
            worker
            for worker in state.workers.values()
            if worker.pool == pool and gives_credits(worker, policies, now)
        ]
        leases = state.occupied.get(pool)
        self.whole = sum(worker.slots for worker in workers)
        """Slots, those in use included."""
        if policies.shards > 1:  # what of them this shard may use is for the treasury to say
            self.whole = min(self.whole, state.meta.credits.get(f"slots:{pool}", 0))
        self.slots = max(0, self.whole - (0 if leases is None else leases.slots))
        self.tokens: float = NO_LIMIT
        """Infinite as soon as one of the workers knows no limit."""
        if workers and all(worker.tokens for worker in workers):
            self.tokens = sum(worker.tokens for worker in workers) - (0 if leases is None else leases.tokens)
        self.closed = False
        """What is left is held for a task that needs more."""

    def fits(self, entry: TaskEntry) -> bool:
        """Whether an attempt fits in what is left. Alone in its pool any number of tokens does: nothing would help it."""
        return entry.slots <= self.slots and (entry.tokens <= self.tokens or self.slots == self.whole)

    def give(self, entry: TaskEntry) -> None:
        """An attempt was started."""
        self.slots -= entry.slots
        self.tokens -= entry.tokens
