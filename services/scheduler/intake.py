"""What enters and what is withdrawn. Invariant: a submission becomes exactly one task, however often it is delivered.

Bad submissions are answered by a `rejected` state with one line that says why; nothing here raises.
"""

from __future__ import annotations

import msgspec

from schemas.ids import digest
from schemas.tasks import DomainPaused, DomainResumed, QuotaChanged, TaskCancelled, TaskSubmitted
from services.scheduler.effects import Effect, Publish
from services.scheduler.moves import announce, announce_ended, end, free_slot, record_end, revoke
from services.scheduler.order import estimate, virtual_deadline
from services.scheduler.policies import Policies
from services.scheduler.state import HELD, Ended, State, TaskEntry, place

_encoder = msgspec.msgpack.Encoder(order="deterministic")


def content_of(event: TaskSubmitted) -> str:
    """Digest of a submission without the task's id: what a second use of an idempotency key must equal."""
    anonymous = msgspec.structs.replace(event.task, id="-")
    return digest(_encoder.encode([anonymous, event.priority, event.parent, event.level]))[:32]


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
    reason = ""
    if event.idempotency_key and (first := state.keys.get(event.idempotency_key)) is not None:
        original = state.live.get(first) or state.ended[first]
        if original.content == content:
            state.count("duplicate_task")
            return []
        reason = f"idempotency key {event.idempotency_key!r} was used with other content by task {first}; use a new key"
    elif task.domain not in policies.domains:
        reason = f"unknown domain {task.domain!r}; `temper domains ls` lists the known ones"
    elif state.ready_in(task.domain) >= policies.ready_cap:
        reason = (
            f"domain {task.domain} has {policies.ready_cap} ready tasks, its cap; "
            "submit again later under a new id or raise scheduler.ready_cap"
        )
    state.meta.submitted += 1
    if not reason and task.batch and task.batch in state.meta.closed:
        admitted = _admit(state, policies, event, now, content=content, trace=trace)
        entry = state.live[task.id]
        entry.reason = "its batch was cancelled before it came"
        return [admitted, end(state, entry, "cancelled", now)]
    if reason:
        state.count("rejected")
        return [_reject(state, event, now, content=content, reason=reason, trace=trace)]
    return [_admit(state, policies, event, now, content=content, trace=trace)]


def _admit(
    state: State, policies: Policies, event: TaskSubmitted, now: float, *, content: str, trace: str
) -> Publish:
    task, policy = event.task, policies.of(event.task.domain)
    parent = state.ended.get(event.parent)
    eligible_at = parent.eligible_at if parent is not None else now
    seconds = estimate(state.domains.get(task.domain), policy.deadline)
    entry = TaskEntry(
        id=task.id,
        domain=task.domain,
        purpose=task.purpose,
        pool=policies.pool,
        body=_encoder.encode(task),
        content=content,
        order=state.meta.orders,
        group_size=task.group_size or policies.group_size,
        priority=event.priority,
        key=event.idempotency_key,
        parent=event.parent,
        level=event.level,
        batch=task.batch,
        trace=trace,
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
    state: State, event: TaskSubmitted, now: float, *, content: str, reason: str, trace: str
) -> Publish:
    task = event.task
    ended = Ended(
        id=task.id,
        domain=task.domain,
        purpose=task.purpose,
        state="rejected",
        content=content,
        key=event.idempotency_key,
        reason=reason,
        parent=event.parent,
        batch=task.batch,
        ended_at=now,
    )
    record_end(state, ended)
    return announce_ended(ended, trace)


def _conflict(state: State, event: TaskSubmitted, known: TaskEntry | Ended, now: float) -> list[Effect]:
    """Same id, other content: the submitter is told, and the true state of the first task stays the newest record."""
    state.count("conflicting_task")
    refusal = Ended(
        id=known.id,
        domain=event.task.domain,
        purpose=event.task.purpose,
        state="rejected",
        content="",
        reason=f"task id {known.id} is taken by a task with other content; use a new id",
        batch=event.task.batch,
        ended_at=now,
    )
    truth = announce(known, keep=True) if isinstance(known, TaskEntry) else announce_ended(known, keep=True)
    return [announce_ended(refusal, keep=True), truth]


def cancel(state: State, policies: Policies, event: TaskCancelled, now: float) -> list[Effect]:
    """Withdraw one task, or all tasks of a batch, those still to come included; held leases are revoked.

    Topics are ordered within a partition only: tasks that were submitted before the cancellation may be read after it.
    """
    chosen: set[str] = set()
    if event.batch and event.batch not in state.meta.closed:
        state.meta.closed.append(event.batch)
    if event.task_id in state.live:
        chosen.add(event.task_id)
    if event.batch:
        chosen |= state.batches.get(event.batch, set())
    if not chosen:
        known = event.task_id in state.ended
        state.count("cancel_of_ended_task" if known else "cancel_of_unknown_task")
        return []
    effects: list[Effect] = []
    for entry in sorted((state.live[task_id] for task_id in chosen), key=lambda found: found.order):
        if entry.state in HELD:
            free_slot(state, policies, entry, now)
            effects.append(revoke(entry, "cancelled"))
        entry.reason = event.reason or "cancelled"
        effects.append(end(state, entry, "cancelled", now))
    return effects


def control(
    state: State, policies: Policies, event: DomainPaused | DomainResumed | QuotaChanged
) -> list[Effect]:
    """Pause, resume or limit a domain."""
    if event.domain not in policies.domains:
        state.count("control_of_unknown_domain")
        return []
    record = state.domain(event.domain)
    before = (record.paused, record.nominal)
    if isinstance(event, QuotaChanged):
        record.nominal = event.nominal
    else:
        record.paused = isinstance(event, DomainPaused)
    if before == (record.paused, record.nominal):
        state.count("control_without_change")
    return []
