"""Quotas and credits. Invariant: occupancy is the set of unexpired leases; its sums change with it alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from services.scheduler.cohorts import NO_LIMIT, limits_of, spare, used
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, TaskEntry, Worker
from services.scheduler.state import State, under_way


def gives_credits(worker: Worker, policies: Policies, now: float) -> bool:
    """Whether a worker's slots count."""
    return (
        worker.service == "sampler"
        and not worker.draining
        and now - worker.seen_at < policies.worker_timeout_s
    )


class There(NamedTuple):
    """Slots that some domains can have at a time, as far as that is known."""

    slots: int
    unknown: tuple[str, ...]
    """Pools of theirs that are not set up to have so many, and of which no live sampler has said how many it has."""


def there(state: State, policies: Policies, domains: Iterable[str], now: float) -> There:
    """What exists for these domains: the slots of the pools that their tasks run in.

    That is the run's own pool, and any other in which tasks of theirs wait or hold slots. A pool has what it is set up to have
    (`scheduler.pool_slots`), else what its live samplers have; draining and silent ones do not count.
    """
    names = set(domains)
    pools = {policies.pool}
    pools |= {
        pool
        for (pool, _), board in state.lanes.items()
        if any(domain in names and lane.ready for domain, lane in board.items())
    }
    pools |= {entry.pool for entry in under_way(state) if entry.domain in names and entry.state in HELD}
    slots, unknown = 0, []
    for pool in sorted(pools):
        live = sum(
            worker.slots
            for worker in state.workers.values()
            if worker.pool == pool and gives_credits(worker, policies, now)
        )
        slots += policies.pool_slots.get(pool, live)
        if not policies.pool_slots.get(pool, live):
            unknown.append(pool)
    return There(slots, tuple(unknown))


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
    whole = verifiable_by_all(state, policies, now)
    if whole is None or policies.shards == 1:
        return whole
    return min(whole, state.meta.credits.get("verify", 0))


def verifiable_by_all(state: State, policies: Policies, now: float) -> int | None:
    """Likewise, of all shards together."""
    slots = sum(
        worker.slots
        for worker in state.workers.values()
        if worker.service == "verifier" and now - worker.seen_at < policies.worker_timeout_s
    )
    return slots * policies.verify_backlog if slots and policies.verify_backlog else None


class Free:
    """What a pool's live workers have left."""

    __slots__ = (
        "all_tokens",
        "closed",
        "largest",
        "most",
        "slots",
        "there",
        "tokens",
        "whole",
        "whole_tokens",
    )

    def __init__(self, state: State, policies: Policies, pool: str, now: float) -> None:
        workers = [
            worker
            for worker in state.workers.values()
            if worker.pool == pool and worker.slots and gives_credits(worker, policies, now)
        ]
        leases = state.occupied.get(pool)
        self.there = self.whole = sum(worker.slots for worker in workers)
        """Slots, those in use included; `whole` is what of them this scheduler may use."""
        self.largest = max((worker.slots for worker in workers), default=0)
        """Slots of the largest of them: an attempt runs in one."""
        self.whole_tokens: float = NO_LIMIT
        """Likewise, tokens: infinite as soon as one of the workers knows no limit."""
        if workers and all(worker.tokens for worker in workers):
            self.whole_tokens = sum(worker.tokens for worker in workers)
        self.all_tokens = self.whole_tokens
        if policies.shards > 1:  # what of them this shard may use is for the treasury to say
            self.whole = min(self.whole, state.meta.credits.get(f"slots:{pool}", 0))
            if self.whole_tokens != NO_LIMIT:
                self.whole_tokens = min(self.whole_tokens, state.meta.credits.get(f"tokens:{pool}", 0))
        self.slots = max(0, self.whole - (0 if leases is None else leases.slots))
        self.tokens = self.whole_tokens - (0 if leases is None else leases.tokens)
        self.most = min(self.largest, self.whole)
        """Slots that an attempt may need to be started with the workers that are here, once all leases have ended."""
        self.closed = False
        """What is left is held for a task that needs more."""

    def fits(self, entry: TaskEntry) -> bool:
        """Whether an attempt fits in what is left. One that needs more tokens than all workers have fits once it has them all.

        Then it is alone in its pool, and waiting longer would not help. An engine takes the samples that it has no room for
        one after the other.
        """
        return entry.slots <= self.slots and min(entry.tokens, self.all_tokens) <= self.tokens

    def give(self, entry: TaskEntry) -> None:
        """An attempt was started."""
        self.slots -= entry.slots
        self.tokens -= entry.tokens
