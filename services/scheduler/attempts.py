"""Life of an attempt. Invariant: it ends once: by its last verdict, by its lease's expiry, or by the verification deadline.

Attempt number = 1 + failures + losses + drains, so every dispatch has a lease of its own and a result of an old lease
can never count for a new one.
"""

from __future__ import annotations

import bisect

import msgspec

from schemas.rewards import TrajectoryVerified
from schemas.tasks import Task
from schemas.verdicts import usable
from services.scheduler.degrade import child_id, child_seed, retries, rung
from services.scheduler.effects import Derive, Effect
from services.scheduler.moves import end, free_slot, move, revoke
from services.scheduler.order import observe
from services.scheduler.policies import Policies
from services.scheduler.retry import backoff
from services.scheduler.state import ACTIVE, HELD, Result, State, TaskEntry

_task = msgspec.msgpack.Decoder(Task)


def verified(state: State, policies: Policies, event: TrajectoryVerified, now: float) -> list[Effect]:
    """Take a verdict into the current attempt; end it when the group is complete."""
    entry = state.live.get(event.task_id)
    if entry is None:
        state.count("verdict_of_ended_task" if event.task_id in state.ended else "verdict_of_unknown_task")
        return []
    if entry.state not in ACTIVE or event.lease_id != entry.lease_id or event.attempt != entry.attempt:
        state.count("verdict_of_other_attempt")
        return []
    if not 0 <= event.index < entry.group_size:
        state.count("verdict_out_of_range")
        return []
    position = bisect.bisect_left(entry.results, event.index, key=lambda result: result.index)
    if position < len(entry.results) and entry.results[position].index == event.index:
        state.count("duplicate_verdict")
        return []
    verdict = event.verdict
    score = None if verdict.outcome == "infra" else verdict.score
    entry.results = [
        *entry.results[:position],
        Result(index=event.index, score=score, passed=verdict.passed),
        *entry.results[position:],
    ]
    entry.updated_at = now
    state.changed.add("task:" + entry.id)
    if len(entry.results) == entry.group_size:
        return finish(state, policies, entry, now, verdict.evidence if score is None else "infra verdicts")
    if entry.state == "leased":
        return [move(state, entry, "running", now, due_at=entry.due_at)]
    return []


def released(state: State, policies: Policies, entry: TaskEntry, now: float, *, done: bool) -> list[Effect]:
    """The sampler gave the lease back: its samples are out, their verdicts have until the verification deadline.

    `done` is False when it abandoned the work, which says nothing about how long such work takes.
    """
    seconds = free_slot(state, policies, entry, now)
    if done:
        observe(state, entry.domain, seconds)
    verify_s = policies.of(entry.domain).timeouts.verify_s
    return [move(state, entry, "verifying", now, due_at=now + verify_s)]


def expired(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[Effect]:
    """A timer came up: the backoff is over, the lease ran out, or verdicts are missing."""
    if entry.state == "backoff":
        entry.reason = ""
        return [move(state, entry, "ready", now)]
    if entry.state in HELD:
        where = f"worker {entry.worker}" if entry.worker else "no worker"
        effects = [revoke(entry, "expired")]
        return effects + finish(state, policies, entry, now, f"lease expired, held by {where}")
    missing = entry.group_size - len(entry.results)
    return finish(
        state, policies, entry, now, f"{missing} of {entry.group_size} verdicts did not arrive in time"
    )


def finish(state: State, policies: Policies, entry: TaskEntry, now: float, cause: str) -> list[Effect]:
    """End the current attempt by the verdicts that are in; `cause` says what went wrong should they not be usable."""
    complete = len(entry.results) == entry.group_size
    seconds = free_slot(state, policies, entry, now)
    if complete and seconds > 0.0:
        observe(state, entry.domain, seconds)
    scores = [result.score for result in entry.results if result.score is not None]
    if not usable(len(scores), entry.group_size):
        return _lost(state, policies, entry, now, cause)
    if complete and entry.purpose == "train":
        state.meta.accepted += 1  # only complete groups: the trainer takes no others
    score = sum(scores) / len(scores)
    if any(result.passed for result in entry.results):
        entry.reason = ""
        return [end(state, entry, "succeeded", now, score=score)]
    entry.failures += 1
    entry.reason = "no sample passed"
    return _failed(state, policies, entry, now, score)


def _lost(state: State, policies: Policies, entry: TaskEntry, now: float, cause: str) -> list[Effect]:
    policy = policies.of(entry.domain)
    worker = state.workers.get(entry.worker)
    if worker is not None and worker.draining:
        entry.drains += 1
        entry.reason = f"worker {entry.worker} drained"
        return [_back_off(state, entry, now, 0.0)]
    entry.losses += 1
    if entry.losses > policy.retry.infra:
        entry.reason = f"lost {entry.losses} times to infrastructure, last: {cause}"
        return [end(state, entry, "dead", now)]
    entry.reason = f"attempt {entry.attempt} lost: {cause}"
    retry = policy.retry
    return [
        _back_off(
            state,
            entry,
            now,
            backoff(entry.id, entry.attempt, entry.losses, retry.backoff_s, retry.backoff_max_s),
        )
    ]


def _failed(state: State, policies: Policies, entry: TaskEntry, now: float, score: float) -> list[Effect]:
    policy = policies.of(entry.domain)
    retry = policy.retry
    if retries(retry, policy.ladder, entry.purpose, entry.level, entry.failures):
        wait = backoff(entry.id, entry.attempt, entry.failures, retry.backoff_s, retry.backoff_max_s)
        return [_back_off(state, entry, now, wait)]
    difficulty = rung(policy.ladder, entry.purpose, entry.level)
    if difficulty is None:
        return [end(state, entry, "failed", now, score=score)]
    parent = _task.decode(entry.body)
    level = entry.level + 1
    children = tuple(child_id(entry.id, level, index) for index in range(policy.ladder.children))
    entry.reason = f"no sample passed in {entry.failures} attempts; replaced by {len(children)} at difficulty {difficulty}"
    effects: list[Effect] = [end(state, entry, "degraded", now, score=score, children=children)]
    effects += [
        Derive(
            parent=parent,
            child_id=child,
            difficulty=difficulty,
            level=level,
            index=index,
            seed=child_seed(entry.id, level, index),
            priority=entry.priority,
            trace=entry.trace,
        )
        for index, child in enumerate(children)
    ]
    return effects


def _back_off(state: State, entry: TaskEntry, now: float, seconds: float) -> Effect:
    effect = move(state, entry, "backoff", now, due_at=now + seconds)
    entry.results = []
    entry.lease_id = ""
    entry.worker = ""
    entry.charged_s = 0.0
    return effect
