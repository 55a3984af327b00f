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


def cancel(state: State, policies: Policies, event: TaskCancelled, now: float) -> list[Effect]:
    """Withdraw one task with its sub-tasks, or all tasks of a batch, those still to come included; held leases are revoked.

    Topics are ordered within a partition only: tasks that were submitted before the cancellation may be read after it.
    """
    if len(event.batch) > LONGEST_LABEL or not (event.task_id or event.batch):
        state.count("cancel_of_nothing")
        return []
    if withdraw(state, event.task_id, clip(event.reason)) and not event.batch:
        return []
    if event.task_id in state.expected and event.task_id not in state.live:
        return _underivable(state, event, now)
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


def _underivable(state: State, event: TaskCancelled, now: float) -> list[Effect]:
    """A sub-task that somebody waits for will not come: it ends as rejected, and the one that waits hears of it."""
    parent = state.live[state.expected[event.task_id]]
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
    return [announce_ended(ended, parent.trace), *settle(state, ended.id, now)]
