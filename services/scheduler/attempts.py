"""Life of an attempt. Invariant: it ends once: by its last verdict, by its lease's expiry, or by the verification deadline.

Attempt number = 1 + failures + losses + timeouts + drains + spared: every dispatch has a lease of its own and a result of
an old lease can never count for a new one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from schemas.heartbeats import Released
from schemas.ids import trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.states import UNDER_WAY
from schemas.verdicts import Verdict, clip, usable
from services.scheduler import blame, mix
from services.scheduler.effects import Effect
from services.scheduler.estimates import observe
from services.scheduler.failures import Fault, missed, passed, unmeasured
from services.scheduler.moves import conclude, free_slot, revoke, take
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, Progress, Result, TaskEntry, Worker
from services.scheduler.state import State, under_way


def verified(state: State, policies: Policies, event: TrajectoryVerified, now: float) -> list[Effect]:
    """Take a verdict into the current attempt; end it when the group is complete."""
    entry = state.live.get(event.task_id)
    if entry is None:
        state.count("verdict_of_ended_task" if event.task_id in state.ended else "verdict_of_unknown_task")
        return []
    if entry.state not in UNDER_WAY or event.lease_id != entry.lease_id or event.attempt != entry.attempt:
        state.count("verdict_of_other_attempt")
        return []
    if not 0 <= event.index < entry.group_size:
        state.count("verdict_out_of_range")
        return []
    position = bisect.bisect_left(entry.results, event.index, key=lambda result: result.index)
    if position < len(entry.results) and entry.results[position].index == event.index:
        state.count("duplicate_verdict")
        return []
    score = measured(event.verdict)
    if score is None and event.verdict.outcome != "infra":
        state.count("verdict_without_a_score")
    entry.results = (
        *entry.results[:position],
        Result(
            index=event.index,
            score=score,
            passed=score is not None and event.verdict.passed,
            killed=score is None and event.fault == "killed",
        ),
        *entry.results[position:],
    )
    entry.updated_at = now
    state.changed.add("task:" + entry.id)
    if len(entry.results) == entry.group_size:
        detail = event.verdict.evidence if score is None else "infra verdicts"
        return finish(state, policies, entry, now, fault="lost", detail=detail)
    if entry.state == "leased":
        return take(state, entry, "started", now, due_at=entry.due_at)
    return []


def measured(verdict: Verdict) -> float | None:
    """The score of a verdict; None for `infra`, and for a figure that is none: missing, not finite or outside [0, 1]."""
    score = verdict.score
    return None if verdict.outcome == "infra" or score is None or not 0.0 <= score <= 1.0 else score


def advanced(state: State, policies: Policies, event: StageVerified, now: float) -> list[Effect]:
    """A stage was verified: that is kept, and the verdicts have their time anew. Each stage counts once, so that this ends."""
    entry = state.live.get(event.task_id)
    if entry is None:
        state.count("stage_of_ended_task" if event.task_id in state.ended else "stage_of_unknown_task")
        return []
    index = _index(entry, event)
    if entry.state not in UNDER_WAY or event.attempt != entry.attempt or index is None:
        state.count("stage_of_other_attempt")
        return []
    known = {part.index: part for part in entry.progress}
    before = known.get(index, Progress(index=index, stages=0, passed=0))
    if event.stage < before.stages:
        state.count("duplicate_stage")
        return []
    known[index] = Progress(
        index=index,
        stages=event.stage + 1,
        passed=before.passed + event.result.passed,
        snapshot=event.result.snapshot or before.snapshot,
    )
    entry.progress = tuple(known[number] for number in sorted(known))
    entry.updated_at = now
    if entry.state == "verifying":
        entry.due_at = max(entry.due_at, now + policies.of(entry.domain).timeouts.verify_s)
    state.changed.add("task:" + entry.id)
    return []


def _index(entry: TaskEntry, event: StageVerified) -> int | None:
    """The member that a stage is of: the trajectory's identity says so."""
    members = range(entry.group_size)
    return next(
        (n for n in members if trajectory_id(entry.id, entry.attempt, n) == event.trajectory_id), None
    )


def renewed(
    state: State, policies: Policies, entry: TaskEntry, worker: str, now: float, at: float
) -> list[Effect]:
    """Its worker named the lease, as of `at`: it is good for another `lease_s`, within the time an attempt may take in all."""
    timeouts = policies.of(entry.domain).timeouts
    entry.worker = worker
    entry.due_at = min(max(entry.due_at, at + timeouts.lease_s), last_moment(policies, entry))
    state.changed.add("task:" + entry.id)
    if entry.state == "leased":
        return take(state, entry, "started", now, due_at=entry.due_at)
    return []


def last_moment(policies: Policies, entry: TaskEntry) -> float:
    """When the attempt under way has had its time, however often its lease is renewed."""
    return entry.leased_at + policies.of(entry.domain).timeouts.attempt_s


def released(
    state: State, policies: Policies, entry: TaskEntry, given: Released, now: float, *, draining: bool
) -> list[Effect]:
    """The sampler gave the lease back: its samples are out, their verdicts have until the verification deadline.

    An abandoned one says nothing about how long such work takes; one that was in its engine when that failed is lost at once.
    """
    if given.reason == "killed" or given.company:
        detail = given.detail or "the engine did not survive it"
        fault: Fault = "killed" if given.reason == "killed" else "crash"
        sharing = max(1, given.company)
        return finish(state, policies, entry, now, fault=fault, detail=clip(detail), sharing=sharing)
    seconds = free_slot(state, policies, entry, now)
    if given.reason == "finished":
        observe(state, entry.domain, seconds, entry.kind)
        blame.acquit(entry)
    else:
        entry.given_up, entry.drained = True, draining
    verify_s = policies.of(entry.domain).timeouts.verify_s
    return take(state, entry, "returned", now, due_at=now + verify_s)


def gone(
    state: State, policies: Policies, worker: Worker, kept: Iterable[str], now: float, how: str
) -> list[Effect]:
    """A worker's process has ended, and with it the leases it held but for those that its successor names in `kept`.

    `worker`: by its last heartbeat. Only an end for want of memory, of which one lease alone may be the cause, is that lease's
    doing for sure; see `blame`.
    """
    named = set(kept)
    held = [
        entry
        for entry in under_way(state)
        if entry.worker == worker.name and entry.state in HELD and entry.lease_id not in named
    ]
    words = {"memory": "ran out of memory", "": "was started again"}.get(how, f"ended by {how}")
    effects: list[Effect] = []
    for entry in sorted(held, key=lambda found: found.order):
        effects.append(revoke(entry, "expired"))
        effects += finish(
            state,
            policies,
            entry,
            now,
            fault="killed" if how == "memory" else "death",
            detail=f"worker {worker.name} {words} while it held the lease",
            sharing=blame.sharers(worker, entry.lease_id, len(held)),
        )
    return effects


def expired(state: State, policies: Policies, entry: TaskEntry, now: float) -> list[Effect]:
    """A timer came up: the backoff is over, the lease ran out, verdicts or sub-tasks are missing."""
    if entry.state == "backoff":
        entry.cause, entry.reason = "", ""
        return take(state, entry, "rested", now)
    if entry.state == "waiting":
        return conclude(state, entry, now, over=True)
    if entry.state in HELD:
        effects: list[Effect] = [revoke(entry, "expired")]
        if now >= last_moment(policies, entry):
            detail = f"{policies.of(entry.domain).timeouts.attempt_s:g} s were not enough for the samples"
            return effects + finish(state, policies, entry, now, fault="timeout", detail=detail)
        if not entry.worker:
            detail = "lease expired, held by no worker"
            return effects + finish(
                state, policies, entry, now, fault="lost", detail=detail, sharing=blame.UNSEEN
            )
        detail = f"lease expired, held by worker {entry.worker}"
        worker = state.workers.get(entry.worker)
        if worker is None or now - worker.seen_at < policies.worker_timeout_s:
            return effects + finish(state, policies, entry, now, fault="lost", detail=detail)
        # Nobody has heard of the worker either: it has vanished with all that it held, each of which comes here by itself.
        sharing = blame.sharers(worker, entry.lease_id, worker.holds)
        return effects + finish(state, policies, entry, now, fault="silent", detail=detail, sharing=sharing)
    missing = entry.group_size - len(entry.results)
    detail = f"{missing} of {entry.group_size} verdicts did not arrive in time"
    return finish(state, policies, entry, now, fault="lost" if entry.given_up else "timeout", detail=detail)


def finish(
    state: State,
    policies: Policies,
    entry: TaskEntry,
    now: float,
    *,
    fault: Fault,
    detail: str,
    sharing: int | None = None,
) -> list[Effect]:
    """End the current attempt by the verdicts that are in.

    `fault`, `detail` and `sharing` (`failures.unmeasured`) say what went wrong should they not be usable.
    """
    complete = len(entry.results) == entry.group_size
    seconds = free_slot(state, policies, entry, now)
    if complete and seconds > 0.0:
        observe(state, entry.domain, seconds, entry.kind)
    scores = [result.score for result in entry.results if result.score is not None]
    if not usable(len(scores), entry.group_size):
        if any(
            result.killed for result in entry.results
        ):  # its verifiers: one answer at a time, so there is no doubt
            fault, sharing = "killed", None
        return unmeasured(state, policies, entry, now, fault=fault, detail=detail, sharing=sharing)
    if complete and entry.purpose == "train":
        state.meta.accepted += 1  # only complete groups: the trainer takes no others
        mix.observe(state, policies, entry, scores)
    score = sum(scores) / len(scores)
    if any(result.passed for result in entry.results):
        return passed(state, policies, entry, now, score)
    return missed(state, policies, entry, now, score)
