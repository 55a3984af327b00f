"""How the queue stands. Invariant: read from the state alone; asking changes nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

from services.scheduler.admission import train_allowance
from services.scheduler.order import estimate, fair_key
from services.scheduler.policies import Policies
from services.scheduler.quotas import free_slots, gives_credits, room
from services.scheduler.state import HELD, State


def figures(state: State, policies: Policies, now: float) -> dict[str, float]:
    """Gauges and counters for heartbeats."""
    meta = state.meta
    phases = Counter(entry.state for entry in state.live.values())
    found: dict[str, float] = {
        "ready": phases["ready"],
        "leased": phases["leased"],
        "running": phases["running"],
        "verifying": phases["verifying"],
        "backoff": phases["backoff"],
        "submitted": meta.submitted,
        "live": len(state.live),
        "terminal": len(state.ended),
        "leases": len(state.leases),
        "free_slots": free_slots(state, policies, policies.pool, now),
        "accepted": meta.accepted,
        "allowance": train_allowance(state, policies),
        "version": meta.version,
        "decisions": meta.decisions,
        "seq": meta.seq,
        "epoch": meta.epoch,
    }
    found |= {name: float(count) for name, count in meta.ended.items()}
    found |= {f"ignored_{name}": float(count) for name, count in meta.counters.items()}
    return {name: float(value) for name, value in found.items()}


def summary(state: State, policies: Policies, now: float) -> dict[str, Any]:
    """Everything `temper ps` shows; times in seconds from `now`."""
    domains: dict[str, dict[str, Any]] = {}
    for name in sorted(policies.domains.keys() | state.domains.keys()):
        record = state.domains.get(name)
        limit = room(state, policies, name)
        domains[name] = {
            "layer": policies.of(name).layer,
            "weight": policies.of(name).weight,
            "paused": record is not None and record.paused,
            "leases": len(state.held.get(name, ())),
            "room": None if limit == float("inf") else int(limit),
            "estimate_s": estimate(record, policies.of(name).deadline),
            "fair_key": fair_key(state, policies, name, "train", now),
            "states": dict(record.ended) if record is not None else {},
        }
    for entry in state.live.values():
        phases = domains.setdefault(entry.domain, {"states": {}})["states"]
        phases[entry.state] = phases.get(entry.state, 0) + 1
    leases = [
        {
            "lease_id": entry.lease_id,
            "task": entry.id,
            "domain": entry.domain,
            "attempt": entry.attempt,
            "state": entry.state,
            "worker": entry.worker,
            "expires_in_s": entry.due_at - now,
        }
        for entry in sorted(state.live.values(), key=lambda found: found.order)
        if entry.state in HELD
    ]
    workers = [
        {
            "worker": worker.name,
            "service": worker.service,
            "pool": worker.pool,
            "slots": worker.slots,
            "draining": worker.draining,
            "gives_credits": gives_credits(worker, policies, now),
            "policy_version": worker.policy_version,
            "silent_s": now - worker.seen_at,
        }
        for _, worker in sorted(state.workers.items())
    ]
    return {
        "figures": figures(state, policies, now),
        "domains": domains,
        "leases": leases,
        "workers": workers,
    }
