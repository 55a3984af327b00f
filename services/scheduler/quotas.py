"""Quotas and credits. Invariant: occupancy is the set of unexpired leases, never a counter."""

from __future__ import annotations

from services.scheduler.policies import Policies
from services.scheduler.state import State, Worker


def gives_credits(worker: Worker, policies: Policies, now: float) -> bool:
    """Whether a worker's slots count."""
    return (
        worker.service == "sampler"
        and not worker.draining
        and now - worker.seen_at < policies.worker_timeout_s
    )


def free_slots(state: State, policies: Policies, pool: str, now: float) -> int:
    """Slots of live workers of a pool less the leases outstanding in it, at least 0."""
    slots = sum(
        worker.slots
        for worker in state.workers.values()
        if worker.pool == pool and gives_credits(worker, policies, now)
    )
    return max(0, slots - len(state.occupied.get(pool, ())))


def room(state: State, policies: Policies, domain: str) -> float:
    """Leases a domain may still take; infinite without a quota, 0 while it is paused."""
    record = state.domains.get(domain)
    if record is not None and record.paused:
        return 0
    nominal = policies.of(domain).nominal
    if record is not None and record.nominal is not None:
        nominal = record.nominal
    if nominal == 0:
        return float("inf")
    return max(0, nominal - len(state.held.get(domain, ())))
