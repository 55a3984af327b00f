"""Moves between states. Invariant: every move keeps the indexes, announces the new state, and ends a task at most once."""

from __future__ import annotations

from typing import Literal

from schemas.assignments import AttemptRevoked
from schemas.ids import group_id
from schemas.states import TERMINAL, TaskState
from schemas.states import State as TaskPhase
from services.scheduler.effects import Effect, Publish, Revoke
from services.scheduler.forget import remember
from services.scheduler.join import Child, joined
from services.scheduler.machine import Happening, after
from services.scheduler.order import billed, charge
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, Ended, TaskEntry
from services.scheduler.state import State, lift, shift


def take(
    state: State,
    entry: TaskEntry,
    happening: Happening,
    now: float,
    *,
    due_at: float = 0.0,
    score: float | None = None,
    children: tuple[str, ...] = (),
) -> list[Effect]:
    """Take a live entry where the table says; `due_at` is when that state times out. Nothing, counted, where it says nothing.

    The end of a sub-task may be the end of the task that waits for it, and of the one above: all are in the effects.
    """
    phase = after(entry.state, happening)
    if phase is None:
        state.count(f"illegal_{happening}")
        return []
    if phase in TERMINAL:
        return _end(state, entry, phase, now, score=score, children=children)
    shift(state, entry, phase, now, due_at=due_at)
    return [announce(entry)]


def announce(entry: TaskEntry) -> Publish:
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
            timeouts=entry.timeouts,
            reason=entry.reason,
            cause=entry.cause,
            level=entry.level,
            parent=entry.parent,
            children=entry.children,
            batch=entry.batch,
            kind=entry.kind,
            estimate_s=entry.estimate_s,
            updated_at=entry.updated_at,
        ),
        trace=entry.trace,
    )


def announce_ended(ended: Ended, trace: str = "") -> Publish:
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
            timeouts=ended.timeouts,
            score=ended.score,
            reason=ended.reason,
            cause=ended.cause,
            level=ended.level,
            parent=ended.parent,
            children=ended.children,
            batch=ended.batch,
            updated_at=ended.ended_at,
        ),
        trace=trace,
    )


def record_end(state: State, ended: Ended) -> None:
    """Count a terminal task and remember it."""
    remember(state, ended)
    totals = state.meta.ended
    totals[ended.state] = totals.get(ended.state, 0) + 1


def _end(
    state: State,
    entry: TaskEntry,
    phase: TaskPhase,
    now: float,
    *,
    score: float | None,
    children: tuple[str, ...],
) -> list[Effect]:
    lift(state, entry, phase)
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
        timeouts=entry.timeouts,
        level=entry.level,
        score=score,
        reason=entry.reason,
        cause=entry.cause,
        parent=entry.parent,
        batch=entry.batch,
        children=children or entry.children,
        eligible_at=entry.eligible_at,
        ended_at=now,
    )
    record_end(state, ended)
    by_state = state.domain(entry.domain).ended
    by_state[phase] = by_state.get(phase, 0) + 1
    return [announce_ended(ended, entry.trace), *settle(state, entry.id, now)]


def settle(state: State, child: str, now: float) -> list[Effect]:
    """A task has ended: let the one that waits for it, if any, end by its join rule."""
    parent = state.live.get(state.expected.get(child, ""))
    return [] if parent is None else conclude(state, parent, now)


def conclude(state: State, entry: TaskEntry, now: float, *, over: bool = False) -> list[Effect]:
    """End a waiting task if its sub-tasks decide it; `over`: in any case, by those that have ended."""
    outcome = joined(entry.join, entry.enough, family(state, entry), over=over)
    if outcome is None:
        return []
    entry.reason, entry.cause = outcome.reason, "timeout" if over else "children"
    return take(state, entry, outcome.happening, now, score=outcome.score)


def family(state: State, entry: TaskEntry) -> list[Child]:
    """The sub-tasks of a waiting task as they stand."""
    past = {child.id: Child(child.id, child.state, child.score) for child in entry.past}
    found = []
    for name in entry.children:
        ended = state.ended.get(name)
        found.append(past.get(name, Child(name)) if ended is None else Child(name, ended.state, ended.score))
    return found


def revoke(entry: TaskEntry, reason: Literal["cancelled", "expired", "drained"]) -> Effect:
    """Tell the sampler that holds an attempt to stop."""
    return Revoke(
        event=AttemptRevoked(
            lease_id=entry.lease_id,
            task_id=entry.id,
            attempt=entry.attempt,
            reason=reason,
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
