"""Why a task is where it is. Invariant: a pure reading of the state; every waiting task has at least one stated cause."""

from __future__ import annotations

from typing import Any

import msgspec

from services.scheduler.admission import train_allowance
from services.scheduler.degrade import rung
from services.scheduler.order import fair_key
from services.scheduler.policies import Policies
from services.scheduler.quotas import free_slots, gives_credits, room
from services.scheduler.state import HELD, Ended, State, TaskEntry


def explain(state: State, policies: Policies, task_id: str, now: float) -> dict[str, Any] | None:
    """What is known about a task, its place in the order and what it waits for; None for an unknown task."""
    ended = state.ended.get(task_id)
    if ended is not None:
        return _ended(ended)
    entry = state.live.get(task_id)
    if entry is None:
        return None
    policy = policies.of(entry.domain)
    found: dict[str, Any] = {
        "task": entry.id,
        "domain": entry.domain,
        "purpose": entry.purpose,
        "state": entry.state,
        "attempt": entry.attempt,
        "failures": entry.failures,
        "losses": entry.losses,
        "budget": {
            "failures": 0 if entry.purpose == "eval" else max(0, policy.retry.failures - entry.failures),
            "losses": max(0, policy.retry.infra - entry.losses),
            "next_rung": rung(policy.ladder, entry.purpose, entry.level),
        },
        "eligible_at": entry.eligible_at,
        "deadline": entry.deadline,
        "estimate_s": entry.estimate_s,
        "priority": entry.priority,
        "waited_s": max(0.0, now - entry.eligible_at),
        "reason": entry.reason,
        "parent": entry.parent,
        "waits_for": [],
    }
    if entry.state == "ready":
        found["place"] = _place(state, policies, entry, now)
        found["waits_for"] = _waits(state, policies, entry, now)
    elif entry.state in HELD:
        holder = entry.worker or "a worker of pool " + entry.pool
        found["waits_for"] = [
            f"{holder} to sample {entry.group_size} answers; its lease runs out in {entry.due_at - now:.1f} s unless renewed"
        ]
    elif entry.state == "verifying":
        found["waits_for"] = [
            f"{entry.group_size - len(entry.results)} of {entry.group_size} verdicts, for {entry.due_at - now:.1f} s at most"
        ]
    else:
        found["waits_for"] = [
            f"the end of its backoff in {max(0.0, entry.due_at - now):.1f} s ({entry.reason})"
        ]
    return found


def _ended(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(ended)
    return {"task": found.pop("id")} | {
        name: value for name, value in found.items() if name not in ("content", "type")
    }


def _place(state: State, policies: Policies, entry: TaskEntry, now: float) -> dict[str, Any]:
    rank = (entry.deadline, entry.order)
    ahead = sum(
        1
        for other in state.live.values()
        if other.state == "ready"
        and (other.domain, other.purpose, other.pool) == (entry.domain, entry.purpose, entry.pool)
        and (other.deadline, other.order) < rank
    )
    lanes = state.lanes.get((entry.pool, entry.purpose), {})
    order = sorted(
        (fair_key(state, policies, domain, entry.purpose, now), domain)
        for domain, lane in lanes.items()
        if lane.ready
    )
    return {
        "ahead_in_domain": ahead,
        "domain_rank": [domain for _, domain in order].index(entry.domain) + 1,
        "domains_waiting": len(order),
        "fair_key": fair_key(state, policies, entry.domain, entry.purpose, now),
    }


def _waits(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[str]:
    causes = []
    record = state.domains.get(entry.domain)
    workers = [
        worker
        for worker in state.workers.values()
        if worker.pool == entry.pool and gives_credits(worker, policies, now)
    ]
    if record is not None and record.paused:
        causes.append(f"domain {entry.domain} is paused; `temper resume {entry.domain}` dispatches it again")
    elif room(state, policies, entry.domain) <= 0:
        causes.append(
            f"the quota of domain {entry.domain} is used up by {len(state.held[entry.domain])} leases"
        )
    if not workers:
        causes.append(
            f"no sampler of pool {entry.pool} has sent a heartbeat in {policies.worker_timeout_s:.0f} s"
        )
    elif free_slots(state, policies, entry.pool, now) == 0:
        causes.append(f"all {sum(worker.slots for worker in workers)} slots of pool {entry.pool} are leased")
    if entry.purpose == "train" and state.meta.final:
        causes.append("nothing more: the run's final checkpoint is published")
    elif entry.purpose == "train" and train_allowance(state, policies) == 0:
        causes.append(
            f"the trainer: {state.meta.accepted} groups accepted and {len(state.active)} under way at version "
            f"{state.meta.version} is all that staleness {policies.eta} allows"
        )
    return causes or ["its turn: tasks ahead of it, see place"]
