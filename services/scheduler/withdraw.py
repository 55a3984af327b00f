"""What is withdrawn. Invariant: a cancelled task ends as cancelled, with all below it on its ladder and nothing else.

It spends no budget and is never taken for a failure; what cannot be cancelled, because it never was or has ended, is counted.
"""

from __future__ import annotations

from schemas.states import UNDER_WAY
from schemas.tasks import TaskCancelled
from schemas.verdicts import clip
from services.scheduler.effects import Effect
from services.scheduler.intake import LONGEST_LABEL
from services.scheduler.keys import withdraw
from services.scheduler.moves import announce_ended, free_slot, record_end, revoke, settle, take
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, Ended, TaskEntry
from services.scheduler.state import State

CLOSED = 1000
"""Cancelled batches that are remembered, the newest ones; those of older ones that come so late are admitted."""


def cancel(
    state: State, policies: Policies, event: TaskCancelled, now: float, trace: str = ""
) -> list[Effect]:
    """Withdraw one task with its sub-tasks, or all tasks of a batch, those still to come included; held leases are revoked.

    Topics are ordered within a partition only: tasks that were submitted before the cancellation may be read after it.
    """
    if len(event.batch) > LONGEST_LABEL or not (event.task_id or event.batch):
        state.count("cancel_of_nothing")
        return []
    if withdraw(state, event.task_id, clip(event.reason)) and not event.batch:
        return []
    parent = _fruitless(state, event)
    if parent is not None:
        return _underivable(state, event, parent, now, trace)
    if event.batch and event.batch not in state.meta.closed:
        state.meta.closed = [*state.meta.closed[-(CLOSED - 1) :], event.batch]
    roots = {event.task_id} if event.task_id else set()
    if event.batch:
        roots |= state.batches.get(event.batch, set())
    chosen = _descent(state, roots)
    if not chosen:
        if event.task_id in state.ended:
            state.count("cancel_of_ended_task")
        elif policies.shards == 1:  # else the task may be of another shard
            state.count("cancel_of_unknown_task")
        return []
    effects: list[Effect] = []
    # Parents first: a task that waits must not be ended by its sub-tasks' cancellation instead of its own.
    for entry in sorted(chosen, key=lambda found: (found.level, found.order)):
        if entry.state in HELD:
            free_slot(state, policies, entry, now)
            state.evict("cancelled")
        if entry.state in UNDER_WAY:
            effects.append(revoke(entry, "cancelled"))
        entry.cause, entry.reason = "cancelled", clip(event.reason) or "cancelled"
        effects += take(state, entry, "cancelled", now)
    return effects


def _descent(state: State, roots: set[str]) -> list[TaskEntry]:
    """The live tasks among `roots` and below them, down the ladder."""
    found: list[TaskEntry] = []
    seen: set[str] = set()
    left = sorted(roots)
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        entry, ended = state.live.get(name), state.ended.get(name)
        if entry is not None:
            found.append(entry)
            left += entry.children
        elif ended is not None:
            left += ended.children
    return found


def _fruitless(state: State, event: TaskCancelled) -> TaskEntry | Ended | None:
    """The task whose sub-task will not come: one that waits for it, or that the scheduler names; else None."""
    name = event.task_id
    if name in state.live or name in state.ended:
        return None
    waits = state.live.get(state.expected.get(name, ""))
    if waits is not None:
        return None if any(child.id == name for child in waits.past) else waits
    return (state.live.get(event.parent) or state.ended.get(event.parent)) if event.parent else None


def _underivable(
    state: State, event: TaskCancelled, parent: TaskEntry | Ended, now: float, trace: str
) -> list[Effect]:
    """A sub-task will not come: it ends as rejected, so that it is told of, and a task that waits for it hears of it."""
    state.meta.submitted += 1
    state.count("rejected")
    ended = Ended(
        id=event.task_id,
        domain=parent.domain,
        purpose=parent.purpose,
        state="rejected",
        content=b"",
        level=parent.level + 1,
        reason=clip(event.reason) or "cancelled before it came",
        cause="underivable",
        parent=parent.id,
        batch=parent.batch,
        ended_at=now,
    )
    record_end(state, ended)
    trace = parent.trace if isinstance(parent, TaskEntry) else trace
    return [announce_ended(ended, trace), *settle(state, ended.id, now)]
