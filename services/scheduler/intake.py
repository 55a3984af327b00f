"""What enters. Invariant: a submission becomes exactly one task, however often it is delivered.

Bad submissions are answered by a `rejected` state with one line that says why; nothing here raises.
"""

from __future__ import annotations

import msgspec

from schemas.ids import digest
from schemas.states import Cause
from schemas.tasks import TaskSubmitted
from schemas.verdicts import clip
from services.scheduler.bodies import encode_body
from services.scheduler.cohorts import never_fits, tokens_of
from services.scheduler.effects import Effect, Publish
from services.scheduler.estimates import estimate, kind_of
from services.scheduler.keys import elsewhere, first_use, hold
from services.scheduler.moves import (
    announce,
    announce_ended,
    record_end,
    settle,
    take,
)
from services.scheduler.order import virtual_deadline
from services.scheduler.policies import Policies
from services.scheduler.records import Ended, TaskEntry
from services.scheduler.state import State, place

LARGEST_TASK = 262_144
"""Bytes of a task: it is kept in memory, in the projection and in each assignment."""
LONGEST_LABEL = 256
"""Characters of a batch label, a parent's id or a trace context."""
_encoder = msgspec.msgpack.Encoder(order="deterministic")


def content_of(event: TaskSubmitted) -> bytes:
    """Digest of a submission without the task's id: what a second use of an idempotency key must equal.

    Fields at their defaults are left out, so that one which a later version adds changes no digest.
    """
    anonymous = encode_body(msgspec.structs.replace(event.task, id="-"))
    return bytes.fromhex(digest(_encoder.encode([anonymous, event.priority, event.parent, event.level]))[:32])


def submit(
    state: State, policies: Policies, event: TaskSubmitted, now: float, trace: str = ""
) -> list[Effect]:
    """A task enters: `ready`, or `rejected`, or nothing if it is a duplicate."""
    task = event.task
    content = content_of(event)
    known = state.live.get(task.id) or state.ended.get(task.id)
    if known is not None:
        if known.content == content:
            state.count("duplicate_task")
            return []
        return _conflict(state, event, known, now)
    held = state.pending.get(task.id)
    if held is not None:
        if held.content == content:
            state.count("duplicate_task")
            return []
        return _refuse(state, event, task.id, now)
    first = first_use(state, event.idempotency_key)
    if first is not None and first[1] == content:
        state.count("duplicate_task")
        return []
    cause, reason = refusal(state, policies, event)
    if first is None and elsewhere(policies, event.idempotency_key) and cause != "too_large":
        return hold(state, event, now, content=content, cause=cause, reason=reason, trace=trace)
    return enter(state, policies, event, now, content=content, cause=cause, reason=reason, trace=trace)


def enter(
    state: State,
    policies: Policies,
    event: TaskSubmitted,
    now: float,
    *,
    content: bytes,
    cause: Cause,
    reason: str,
    trace: str,
    eligible_at: float | None = None,
    withdrawn: str = "",
) -> list[Effect]:
    """A submission that is no duplicate becomes a task: refused with a cause, over at once if withdrawn, else ready."""
    task = event.task
    state.meta.submitted += 1
    if cause:
        state.count("rejected")
        return _reject(state, event, now, content=content, cause=cause, reason=reason, trace=trace)
    admitted = _admit(
        state,
        policies,
        event,
        now,
        content=content,
        trace=trace,
        since=now if eligible_at is None else eligible_at,
    )
    withdrawn = _withdrawn(state, event) or withdrawn
    if withdrawn:
        entry = state.live[task.id]
        entry.cause, entry.reason = "cancelled", withdrawn
        return [admitted, *take(state, entry, "cancelled", now)]
    return [admitted]


def refusal(state: State, policies: Policies, event: TaskSubmitted) -> tuple[Cause, str]:
    """Why a submission that is no duplicate is not admitted, in a word and in a line that says what to do; empty if it is."""
    task = event.task
    if (first := first_use(state, event.idempotency_key)) is not None:
        return key_reused(event.idempotency_key, first[0])
    if task.domain not in policies.domains:
        return "unknown_domain", f"unknown domain {task.domain!r}; `temper domains ls` lists the known ones"
    if task.pool and task.pool != policies.pool and task.pool not in policies.pools:
        known = ", ".join(sorted({policies.pool, *policies.pools}))
        return "unknown_pool", f"unknown pool {clip(task.pool, 64)!r}; the pools are {known}"
    size = len(_encoder.encode(task))
    if size > LARGEST_TASK or len(task.batch) > LONGEST_LABEL or len(event.parent) > LONGEST_LABEL:
        reason = (
            f"the task is {size} bytes, {LARGEST_TASK} are allowed, and {LONGEST_LABEL} characters in `batch` and `parent`; "
            "shorten it"
        )
        return "too_large", reason
    if reason := never_fits(state, policies, task):
        return "never_fits", reason
    if state.ready_in(task.domain) + state.pending_in.get(task.domain, 0) >= policies.ready_cap:
        reason = (
            f"domain {task.domain} has {policies.ready_cap} ready tasks, its cap; "
            "submit again later under a new id or raise scheduler.ready_cap"
        )
        return "domain_full", reason
    return "", ""


def key_reused(key: str, first: str) -> tuple[Cause, str]:
    """Why a submission is refused whose key another task has."""
    return "key_reused", f"idempotency key {key!r} was used with other content by task {first}; use a new key"


def _withdrawn(state: State, event: TaskSubmitted) -> str:
    """Why a task is over before it begins: its batch or its parent was cancelled. One repeated on demand is not."""
    if event.again:
        return ""
    if event.task.batch and event.task.batch in state.meta.closed:
        return "its batch was cancelled before it came"
    parent = state.ended.get(event.parent)
    if parent is not None and parent.state == "cancelled":
        return "its parent was cancelled before it came"
    return ""


def _admit(
    state: State,
    policies: Policies,
    event: TaskSubmitted,
    now: float,
    *,
    content: bytes,
    trace: str,
    since: float,
) -> Publish:
    task, policy = event.task, policies.of(event.task.domain)
    parent = None if event.climb else state.live.get(event.parent) or state.ended.get(event.parent)
    eligible_at = parent.eligible_at if parent is not None else since
    kind = kind_of(task)
    seconds = estimate(state.domains.get(task.domain), policy.deadline, kind)
    entry = TaskEntry(
        id=task.id,
        domain=task.domain,
        purpose=task.purpose,
        pool=task.pool or policies.pool,
        body=encode_body(task),
        content=content,
        order=state.meta.orders,
        group_size=task.group_size or policies.group_size,
        slots=policy.slots,
        tokens=tokens_of(policies, task),
        kind=kind,
        priority=event.priority,
        key=event.idempotency_key,
        parent=event.parent,
        level=event.level,
        batch=task.batch,
        trace=trace if len(trace) <= LONGEST_LABEL else "",
        origin=-1.0 if event.origin is None else event.origin,
        climb=event.climb,
        eligible_at=eligible_at,
        estimate_s=seconds,
        deadline=virtual_deadline(eligible_at, seconds, event.priority, policy.deadline),
        updated_at=now,
    )
    state.meta.orders += 1
    if entry.key:
        state.keys[entry.key] = entry.id
    place(state, entry)
    return announce(entry)


def _reject(
    state: State, event: TaskSubmitted, now: float, *, content: bytes, cause: Cause, reason: str, trace: str
) -> list[Effect]:
    task = event.task
    ended = Ended(
        id=task.id,
        domain=task.domain,
        purpose=task.purpose,
        state="rejected",
        content=content,
        key=event.idempotency_key,
        level=event.level,
        reason=reason,
        cause=cause,
        parent=event.parent[:LONGEST_LABEL],
        batch=task.batch[:LONGEST_LABEL],
        ended_at=now,
    )
    record_end(state, ended)
    return [announce_ended(ended, trace), *settle(state, ended.id, now)]


def _conflict(state: State, event: TaskSubmitted, known: TaskEntry | Ended, now: float) -> list[Effect]:
    """Same id, other content: the submitter is told, and the true state of the first task stays the newest record."""
    truth = announce(known) if isinstance(known, TaskEntry) else announce_ended(known)
    return [*_refuse(state, event, known.id, now), truth]


def _refuse(state: State, event: TaskSubmitted, name: str, now: float) -> list[Effect]:
    state.count("conflicting_task")
    refusal = Ended(
        id=name,
        domain=event.task.domain,
        purpose=event.task.purpose,
        state="rejected",
        content=b"",
        reason=f"task id {name} is taken by a task with other content; use a new id",
        cause="id_taken",
        batch=event.task.batch[:LONGEST_LABEL],
        ended_at=now,
    )
    return [announce_ended(refusal)]
