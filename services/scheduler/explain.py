"""Why a task is where it is. Invariant: a pure reading of the state; every waiting task has at least one stated cause."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.tasks import Task
from services.scheduler.admission import train_allowance
from services.scheduler.attempts import last_moment
from services.scheduler.boards import Board
from services.scheduler.cohorts import limits_of, spare, used
from services.scheduler.degrade import first_rung, next_level
from services.scheduler.estimates import estimated
from services.scheduler.join import Child
from services.scheduler.keys import home_of
from services.scheduler.lanes import rank_of
from services.scheduler.moves import family
from services.scheduler.order import fair_key, rank, weight_of
from services.scheduler.policies import Policies
from services.scheduler.quotas import Free, gives_credits, room, verifiable
from services.scheduler.records import HELD, Ended, Pending, TaskEntry
from services.scheduler.state import State

_task = msgspec.msgpack.Decoder(Task)


def explain(state: State, policies: Policies, task_id: str, now: float) -> dict[str, Any] | None:
    """What is known about a task, its place in the order and what it waits for; None for an unknown task."""
    ended = state.ended.get(task_id)
    if ended is not None:
        return _ended(ended)
    held = state.pending.get(task_id)
    if held is not None:
        return _held_back(policies, held, now)
    entry = state.live.get(task_id)
    if entry is None:
        return None
    retry = policies.of(entry.domain).retry
    record = state.domains.get(entry.domain)
    expected, basis = estimated(record, policies.of(entry.domain).deadline, entry.kind)
    found: dict[str, Any] = {
        "task": entry.id,
        "domain": entry.domain,
        "purpose": entry.purpose,
        "pool": entry.pool,
        "state": entry.state,
        "attempt": entry.attempt,
        "failures": entry.failures,
        "losses": entry.losses,
        "timeouts": entry.timeouts,
        "drains": entry.drains,
        "budget": {
            "failures": 0 if entry.purpose == "eval" else max(0, retry.failures - entry.failures),
            "losses": max(0, retry.infra - entry.losses),
            "timeouts": max(0, retry.timeouts - entry.timeouts),
            "kills": max(0, retry.kills - entry.kills),
            "next_rung": _rung(state, policies, entry),
        },
        "level": entry.level,
        "eligible_at": entry.eligible_at,
        "deadline": entry.deadline,
        "kind": entry.kind,
        "estimate_s": entry.estimate_s,
        "estimate_now_s": expected,
        "estimate_from": basis,
        "priority": entry.priority,
        "waited_s": max(0.0, now - entry.eligible_at),
        "cause": entry.cause,
        "reason": entry.reason,
        "parent": entry.parent,
        "batch": entry.batch,
        "progress": [
            {"sample": part.index, "stages": part.stages, "passed": part.passed, "snapshot": part.snapshot}
            for part in entry.progress
        ],
    }
    if record is not None and (record.refused or record.unproven):
        found["control_refused"], found["quota_unproven"] = record.refused, record.unproven
    if entry.state == "ready":
        found["place"] = _place(state, policies, entry, now)
    if entry.state == "waiting":
        found["children"] = {child.id: _child(state, child) for child in family(state, entry)}
    found["waits_for"] = _causes(state, policies, entry, now)
    return found


def _held_back(policies: Policies, held: Pending, now: float) -> dict[str, Any]:
    """A submission that waits for word on its idempotency key."""
    home = home_of(held.key, policies.shards)
    return {
        "task": held.id,
        "domain": held.domain,
        "state": "submitted",
        "waited_s": max(0.0, now - held.at),
        "reason": held.withdrawn or held.reason,
        "waits_for": [f"shard {home}, which decides whether idempotency key {held.key!r} is free"],
    }


def _rung(state: State, policies: Policies, entry: TaskEntry) -> int | None:
    """Level of the sub-tasks should it fail for good, None where it would end."""
    ladder, start = policies.of(entry.domain).ladder, first_rung(state, entry.domain)
    task = _task.decode(entry.body)
    return next_level(ladder, entry.purpose, entry.level, task, start=start, climb=entry.climb)


def _child(state: State, child: Child) -> str:
    entry = state.live.get(child.id)
    if entry is not None:
        return entry.state
    return child.phase or "to come"


def _causes(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[str]:
    """What a live task waits for, at least one line."""
    left = max(0.0, entry.due_at - now)
    if entry.state == "ready":
        return _waits(state, policies, entry, now)
    if entry.state in HELD:
        holder = entry.worker or "a worker of pool " + entry.pool
        last = last_moment(policies, entry) - now
        said = f"{holder} to sample {entry.group_size} answers; its lease runs out in {left:.1f} s unless renewed"
        return [f"{said}, and in {max(0.0, last):.1f} s in any case"]
    if entry.state == "verifying":
        stages = sum(part.stages for part in entry.progress)
        said = f"; {stages} stages verified so far" if entry.progress else ""
        missing = entry.group_size - len(entry.results)
        return [f"{missing} of {entry.group_size} verdicts, for {left:.1f} s at most{said}"]
    if entry.state == "waiting":
        open_ = sum(child.phase is None for child in family(state, entry))
        return [
            f"{open_} of its {len(entry.children)} sub-tasks (join {entry.join}), for {left:.1f} s at most ({entry.reason})"
        ]
    return [f"the end of its backoff in {left:.1f} s ({entry.reason})"]


def _ended(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(ended)
    return {"task": found.pop("id")} | {
        name: value for name, value in found.items() if name not in ("content", "type")
    }


def _place(state: State, policies: Policies, entry: TaskEntry, now: float) -> dict[str, Any]:
    rank_ = rank_of(entry)
    ahead = sum(
        1
        for other in state.live.values()
        if other.state == "ready"
        and (other.domain, other.purpose, other.pool) == (entry.domain, entry.purpose, entry.pool)
        and rank_of(other) < rank_
    )
    lanes = state.lanes.get((entry.pool, entry.purpose)) or Board()
    order = sorted(
        (*rank(state.domains.get(domain), policies.of(domain), entry.purpose, policies.half_life_s), domain)
        for domain, lane in lanes.items()
        if lane.ready
    )
    return {
        "ahead_in_domain": ahead,
        "domain_rank": [domain for *_, domain in order].index(entry.domain) + 1,
        "domains_waiting": len(order),
        "fair_key": fair_key(state, policies, entry.domain, entry.purpose, now),
        "weight": weight_of(state, policies, entry.domain),
        "evaluation_first": 0
        if entry.purpose == "eval"
        else sum(lane.ready for lane in (state.lanes.get((entry.pool, "eval")) or Board()).values()),
        "training_owed_s": state.meta.owed.get(entry.pool, 0.0),
    }


def _waits(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[str]:
    """Causes that keep a ready task from being dispatched now, all of them; its turn, if there is no other."""
    causes = [
        *_domain(state, policies, entry),
        *_pool(state, policies, entry, now),
        *_pacing(state, policies, entry, now),
    ]
    return causes or ["its turn: tasks ahead of it, see place"]


def _domain(state: State, policies: Policies, entry: TaskEntry) -> list[str]:
    name = entry.domain
    record = state.domains.get(name)
    if record is not None and record.paused:
        return [f"domain {name} is paused; `temper resume {name}` dispatches it again"]
    if room(state, policies, name) >= entry.slots:
        return []
    limits, held = limits_of(state, policies, name), used(state, name)
    if not limits.cohort:
        return [f"the quota of domain {name}: {held} of {limits.nominal} slots are leased"]
    if held + entry.slots > limits.most:
        return [
            f"the quota of domain {name}: it holds {held} slots, owns {limits.nominal} and may borrow {limits.borrow}"
        ]
    left = max(0, spare(state, policies, limits.cohort))
    return [
        f"cohort {limits.cohort}: domain {name} holds {held} slots, owns {limits.nominal}, and {left} are left to borrow"
    ]


def _pool(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[str]:
    pool = entry.pool
    if pool in state.meta.drained:
        return [f"pool {pool} is drained; nothing more is given to it until it is resumed"]
    if not any(w.pool == pool and gives_credits(w, policies, now) for w in state.workers.values()):
        return [f"no sampler of pool {pool} has sent a heartbeat in {policies.worker_timeout_s:.0f} s"]
    free = Free(state, policies, pool, now)
    if not free.there:
        return [f"the samplers of pool {pool} are starting, none has slots yet"]
    if entry.slots > free.most:
        return [_never(entry, free)]
    if free.slots == 0:
        return [f"all {free.whole} slots of pool {pool} are leased"]
    if not free.fits(entry):
        return [_too_big(entry, free)]
    reserved = state.meta.reserved.get(pool, "")
    if reserved and reserved != entry.id:
        return [
            f"{free.slots} free slots of pool {pool} are held for task {reserved}, which needs more of them"
        ]
    return []


def _never(entry: TaskEntry, free: Free) -> str:
    """Why a task cannot start with the workers that are here, nor any number of leases ended; nobody waits for it."""
    pool = entry.pool
    if entry.slots > free.largest:
        return (
            f"it fits no worker that is here: it needs {entry.slots} slots, the largest sampler of pool {pool} has "
            f"{free.largest}; start one with more (sampler.slots)"
        )
    return f"it needs {entry.slots} slots, of the {free.there} of pool {pool} its scheduler may use {free.whole} now"


def _too_big(entry: TaskEntry, free: Free) -> str:
    """Why a task does not fit in what is left of its pool; it is waited for."""
    pool = entry.pool
    if entry.slots > free.slots:
        return f"it needs {entry.slots} slots, of the {free.whole} of pool {pool} {free.slots} are free"
    if entry.tokens > free.all_tokens:
        return (
            f"it may hold {entry.tokens} tokens, all samplers of pool {pool} together {int(free.all_tokens)}: it runs alone, "
            f"once the {free.whole - free.slots} slots in use are free"
        )
    if entry.tokens > free.whole_tokens:
        return (
            f"it may hold {entry.tokens} tokens, of the {int(free.all_tokens)} of pool {pool} its scheduler may use "
            f"{int(free.whole_tokens)} now"
        )
    left = max(0, int(free.tokens))
    return (
        f"it may hold {entry.tokens} tokens, of the {int(free.whole_tokens)} of pool {pool} {left} are free"
    )


def _pacing(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[str]:
    causes = []
    bound = verifiable(state, policies, now)
    if bound is not None and state.members >= bound:
        causes.append(
            f"the verifiers: {state.members} samples are under way, {bound} is what their slots allow"
        )
    if entry.purpose == "train" and state.meta.final:
        causes.append("nothing more: the run's final checkpoint is published")
    elif entry.purpose == "train" and train_allowance(state, policies) == 0:
        causes.append(
            f"the trainer: {state.meta.accepted} groups accepted and {state.training} under way at version "
            f"{state.meta.version} is all that staleness {policies.eta} allows"
        )
    return causes
