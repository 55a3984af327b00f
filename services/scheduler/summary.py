"""How the queue stands. Invariant: read from the state alone; asking changes nothing.

`figures` goes out with every heartbeat, so it looks at counters and at domains, never at tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.states import State as TaskPhase
from services.scheduler import mix
from services.scheduler.admission import train_allowance
from services.scheduler.controls import REFUSALS
from services.scheduler.estimates import estimate
from services.scheduler.forget import forgotten
from services.scheduler.order import fair_key, weight_of
from services.scheduler.policies import Policies
from services.scheduler.quotas import free_slots, gives_credits, room
from services.scheduler.records import HELD
from services.scheduler.state import State

PHASES: tuple[TaskPhase, ...] = ("ready", "leased", "running", "verifying", "backoff", "waiting")
"""Live states that are always told, also when no task is in them."""


def figures(state: State, policies: Policies, now: float) -> dict[str, float]:
    """Gauges and counters for heartbeats.

    Beside totals by state: `pending_active` and `pending_inadmissible` (ready tasks whose domain has room, and whose domain
    has not: paused, or its quota is used up), `admission_wait_p50_s` and `_p99_s` (from first eligibility to the first
    lease, to a factor of two), `evicted_<reason>` (attempts that ended without a result), and for mixed sampling
    `mix_wanted/<layer>`, `mix_realised/<layer>` and `mix_gap` (half the sum of differences of all domains' shares).
    """
    meta = state.meta
    pending = _pending(state, policies)
    found: dict[str, float] = {phase: state.phases.get(phase, 0) for phase in PHASES}
    found |= dict(state.phases.items())
    found |= {
        "submitted": meta.submitted,
        "live": len(state.live),
        "terminal": sum(meta.ended.values()),
        "forgotten": forgotten(state),
        "pending_active": pending[0],
        "pending_inadmissible": pending[1],
        "leases": len(state.leases),
        "free_slots": free_slots(state, policies, policies.pool, now),
        "accepted": meta.accepted,
        "allowance": train_allowance(state, policies),
        "version": meta.version,
        "decisions": meta.decisions,
        "controls_refused": sum(meta.counters.get(cause, 0) for cause in REFUSALS),
        "training_owed_s": sum(meta.owed.values()),
        "admission_wait_p50_s": waited_s(meta.waits, 0.50),
        "admission_wait_p99_s": waited_s(meta.waits, 0.99),
        "seq": meta.seq,
        "epoch": meta.epoch,
    }
    found |= meta.ended
    found |= {f"ignored_{name}": count for name, count in meta.counters.items()}
    found |= {f"evicted_{name}": count for name, count in meta.evicted.items()}
    found |= shares(state, policies)
    return {name: float(value) for name, value in found.items()}


def _pending(state: State, policies: Policies) -> tuple[int, int]:
    active = held_back = 0
    for domain in policies.domains:
        ready = state.ready_in(domain)
        if ready and room(state, policies, domain) > 0:
            active += ready
        else:
            held_back += ready
    return active, held_back


def waited_s(waits: Sequence[int], share: float) -> float:
    """Upper bound of the wait that `share` of all tasks did not exceed (a power of two of milliseconds); 0 without any."""
    total = sum(waits)
    below = 0
    for bucket, count in enumerate(waits):
        below += count
        if count and below >= share * total:
            return float(2**bucket) / 1000.0
    return 0.0


def shares(state: State, policies: Policies) -> dict[str, float]:
    """Wanted and realised share of training by layer, and how far domains are from it; nothing while nothing trains."""
    report = mix.report(state, policies)
    if not report:
        return {}
    found = {"mix_gap": sum(abs(row["wanted"] - row["realised"]) for row in report.values()) / 2.0}
    for column in ("wanted", "realised"):
        found |= {
            f"mix_{column}/{layer}": share for layer, share in mix.by_layer(policies, report, column).items()
        }
    return found


def summary(state: State, policies: Policies, now: float) -> dict[str, Any]:
    """Everything `temper ps` shows; times in seconds from `now`."""
    domains: dict[str, dict[str, Any]] = {}
    report = mix.report(state, policies)
    for name in sorted(policies.domains.keys() | state.domains.keys()):
        record = state.domains.get(name)
        limit = room(state, policies, name)
        domains[name] = {
            "layer": policies.of(name).layer,
            "weight": policies.of(name).weight,
            "effective_weight": weight_of(state, policies, name),
            "paused": record is not None and record.paused,
            "leases": state.held[name].leases if name in state.held else 0,
            "room": None if limit == float("inf") else int(limit),
            "estimate_s": estimate(record, policies.of(name).deadline),
            "kinds": {}
            if record is None
            else {kind: of.estimate_s for kind, of in sorted(record.kinds.items())},
            "fair_key": fair_key(state, policies, name, "train", now),
            "states": dict(record.ended) if record is not None else {},
        }
        if record is not None and (record.refused or record.unproven):
            domains[name] |= {"control_refused": record.refused, "quota_unproven": record.unproven}
        if name in report:
            domains[name] |= {
                "share_wanted": report[name]["wanted"],
                "share_realised": report[name]["realised"],
            }
        if record is not None and record.evidence.groups:
            domains[name] |= {
                "score_mean": record.evidence.mean,
                "score_variance": record.evidence.variance,
                "informative": record.evidence.informative,
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
            "tokens": worker.tokens,
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
