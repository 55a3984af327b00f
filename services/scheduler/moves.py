"""Moves between states. Invariant: every move keeps the indexes, announces the new state, and ends a task at most once."""

from __future__ import annotations

from schemas.assignments import AttemptRevoked
from schemas.ids import group_id
from schemas.states import State as TaskPhase
from schemas.states import TaskState
from services.scheduler.effects import Effect, Publish, Revoke
from services.scheduler.order import billed, charge
from services.scheduler.policies import Policies
from services.scheduler.state import HELD, Ended, State, TaskEntry, lift, place


def move(state: State, entry: TaskEntry, phase: TaskPhase, now: float, *, due_at: float = 0.0) -> Effect:
    """Take a live entry to another live state; `due_at` is when that state times out."""
    lift(state, entry)
    entry.state = phase
    entry.due_at = due_at
    entry.updated_at = now
    place(state, entry)
    return announce(entry)


def announce(entry: TaskEntry, *, keep: bool = False) -> Publish:
    """The current state of a live entry, for observers."""
    return Publish(
        event=TaskState(
            task_id=entry.id,
            domain=entry.domain,
            purpose=entry.purpose,
            state=entry.state,
            attempt=entry.attempt,
            failures=entry.failures,
            losses=entry.losses,
            reason=entry.reason,
            parent=entry.parent,
            batch=entry.batch,
            updated_at=entry.updated_at,
        ),
        trace=entry.trace,
        keep=keep,
    )


def announce_ended(ended: Ended, trace: str = "", *, keep: bool = False) -> Publish:
    """The final state of a task, for observers."""
    return Publish(
        event=TaskState(
            task_id=ended.id,
            domain=ended.domain,
            purpose=ended.purpose,
            state=ended.state,
            attempt=ended.attempt,
            failures=ended.failures,
            losses=ended.losses,
            score=ended.score,
            reason=ended.reason,
            parent=ended.parent,
            children=ended.children,
            batch=ended.batch,
            updated_at=ended.ended_at,
        ),
        trace=trace,
        keep=keep,
    )


def record_end(state: State, ended: Ended) -> None:
    """Count a terminal task and remember it."""
    state.ended[ended.id] = ended
    state.changed.add("task:" + ended.id)
    totals = state.meta.ended
    totals[ended.state] = totals.get(ended.state, 0) + 1


def end(
    state: State,
    entry: TaskEntry,
    phase: TaskPhase,
    now: float,
    *,
    score: float | None = None,
    children: tuple[str, ...] = (),
) -> Effect:
    """Take a live entry to a terminal state."""
    lift(state, entry)
    ended = Ended(
        id=entry.id,
        domain=entry.domain,
        purpose=entry.purpose,
        state=phase,
        content=entry.content,
        key=entry.key,
        attempt=entry.attempt,
        failures=entry.failures,
        losses=entry.losses,
        score=score,
        reason=entry.reason,
        parent=entry.parent,
        batch=entry.batch,
        children=children,
        eligible_at=entry.eligible_at,
        ended_at=now,
    )
    record_end(state, ended)
    by_state = state.domain(entry.domain).ended
    by_state[phase] = by_state.get(phase, 0) + 1
    return announce_ended(ended, entry.trace)


def revoke(entry: TaskEntry, reason: str) -> Effect:
    """Tell the sampler that holds an attempt to stop; `reason` is `cancelled` or `expired`."""
    return Revoke(
        event=AttemptRevoked(
            lease_id=entry.lease_id,
            task_id=entry.id,
            attempt=entry.attempt,
            reason="cancelled" if reason == "cancelled" else "expired",
        ),
        pool=entry.pool,
        group_id=group_id(entry.id, entry.attempt),
        trace=entry.trace,
    )


def free_slot(state: State, policies: Policies, entry: TaskEntry, now: float) -> float:
    """Charge for the time that the attempt held its slot, if it still does; seconds it did (0 if it did not)."""
    if entry.state not in HELD:
        return 0.0
    seconds = max(0.0, now - entry.leased_at)
    charge(state, policies, entry, billed(entry, seconds) - entry.charged_s, now)
    return seconds
