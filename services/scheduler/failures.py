"""What becomes of a task whose attempt brought nothing. Invariant: four kinds of failure, four budgets; none pays for another.

- no sample passed: `retry.failures`, then the ladder, then `failed`;
- it ran out of time while sampled or verified: `retry.timeouts`, then `dead`;
- it was lost with its worker or its verdicts were: `retry.infra`, and `retry.kills` where it is known to have ended the
  worker itself; then `dead`. One that does so out of memory would otherwise go round for ever and take others with it. A
  worker's end that others may have caused costs a part of a loss, or nothing (blame.py);
- its worker was told to stop: nothing, it goes on elsewhere.
A cancellation is none of these and is booked in `withdraw` alone.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.cards import Ladder, rungs
from schemas.tasks import Task
from services.scheduler.blame import acquit, suspect
from services.scheduler.degrade import (
    above,
    child_id,
    child_seed,
    climb_id,
    climbs,
    first_rung,
    next_level,
    parts,
    remember,
    retries,
)
from services.scheduler.effects import Derive, Effect
from services.scheduler.machine import Happening
from services.scheduler.moves import take
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.retry import backoff
from services.scheduler.state import State

Fault = Literal["lost", "silent", "death", "crash", "killed", "timeout", "drained"]
"""`silent`: its worker was not heard of any more; `death`: it ended; `crash`: its engine failed; `killed`: for want of memory."""
_task = msgspec.msgpack.Decoder(Task)


def unmeasured(
    state: State,
    policies: Policies,
    entry: TaskEntry,
    now: float,
    *,
    fault: Fault,
    detail: str,
    sharing: int | None = None,
) -> list[Effect]:
    """The attempt ended without a usable group. `sharing`: with its sampler, whose end so many groups may have caused."""
    worker = state.workers.get(entry.worker)
    if fault == "drained":
        entry.drains += 1
        state.evict("drained")
        entry.cause, entry.reason = "drained", detail
        return _again(state, entry, "drained", now, 0.0)
    if entry.drained or (fault not in ("killed", "crash") and worker is not None and worker.draining):
        entry.drains += 1
        state.evict("drained")
        entry.cause, entry.reason = "drained", f"worker {entry.worker} drained"
        return _again(state, entry, "drained", now, 0.0)
    state.evict(_why(entry, fault))
    retry = policies.of(entry.domain).retry
    if fault == "timeout":
        entry.timeouts += 1
        entry.cause = "timeout"
        if entry.timeouts > retry.timeouts:
            entry.reason = f"ran out of time {entry.timeouts} times, last: {detail}"
            return take(state, entry, "died", now)
        entry.reason = f"attempt {entry.attempt} ran out of time: {detail}"
        return _wait(state, policies, entry, "timed_out", now, entry.timeouts)
    if sharing is not None and sharing != 1 and not (sharing and suspect(entry, sharing)):
        return _spared(state, policies, entry, now, sharing, detail)
    if sharing == 1:
        entry.company = 1
    fault = "death" if fault == "killed" and sharing is not None and sharing > 1 else fault
    entry.losses += 1
    entry.kills += fault == "killed"
    entry.deaths += fault in ("killed", "crash", "death", "silent")
    entry.cause = "killed" if fault == "killed" else "lost"
    if entry.kills > retry.kills:
        entry.reason = f"ran its worker out of memory {entry.kills} times, last: {detail}"
        return take(state, entry, "died", now)
    if entry.losses > retry.infra:
        entry.reason = f"lost {entry.losses} times to infrastructure, last: {detail}"
        if entry.losses > 1 and (entry.deaths == entry.losses or entry.deaths > retry.kills):
            entry.cause = "killed"
            times = "each" if entry.deaths == entry.losses else str(entry.deaths)
            entry.reason = (
                f"its worker ended {times} of the {entry.losses} times that it was lost, last: {detail}"
            )
        return take(state, entry, "died", now)
    entry.reason = f"attempt {entry.attempt} lost: {detail}"
    return _wait(state, policies, entry, "lost", now, entry.losses)


def _spared(
    state: State, policies: Policies, entry: TaskEntry, now: float, sharing: int, detail: str
) -> list[Effect]:
    """Its worker ended, and that was not its doing, or not for certain: no budget pays for it."""
    entry.spared += 1
    entry.cause = "lost"
    entry.reason = f"attempt {entry.attempt} lost{' with its worker' if entry.worker else ''}: {detail}"
    if sharing and entry.worker:
        entry.reason += f"; one of {sharing} that were in it, next with {entry.company} at most"
    return _wait(state, policies, entry, "lost", now, entry.spared)


def missed(state: State, policies: Policies, entry: TaskEntry, now: float, score: float) -> list[Effect]:
    """The attempt was measured and no sample passed: another try, simpler sub-tasks, or the end."""
    policy = policies.of(entry.domain)
    ladder, retry = policy.ladder, policy.retry
    entry.failures += 1
    acquit(entry)
    entry.cause, entry.reason = "failed", "no sample passed"
    below, task = None, None
    if ladder.steps and not entry.climb and entry.purpose != "eval":
        task = _task.decode(entry.body)
        start = first_rung(state, entry.domain)
        below = next_level(ladder, entry.purpose, entry.level, task, start=start)
    if retries(retry, ladder, entry.purpose, entry.failures, below=below):
        return _wait(state, policies, entry, "missed", now, entry.failures)
    remember(state, ladder, entry.domain, entry.level, passed=False)
    if below is None or task is None:
        return take(state, entry, "failed", now, score=score)
    children_s = policy.timeouts.children_s
    return _replace(state, ladder, entry, task, below, now, score, children_s)


def passed(state: State, policies: Policies, entry: TaskEntry, now: float, score: float) -> list[Effect]:
    """A sample passed; a sub-task that did leads to a try one rung up."""
    ladder = policies.of(entry.domain).ladder
    entry.cause, entry.reason = "", ""
    remember(state, ladder, entry.domain, entry.level, passed=True)
    effects: list[Effect] = []
    if entry.level and entry.parent and entry.purpose == "train" and ladder.climb:
        if climbs(state.domain(entry.domain), entry.level):
            effects.append(_climb(ladder, entry))
        else:
            state.count("climb_withheld")
    return take(state, entry, "passed", now, score=score) + effects


def _replace(
    state: State,
    ladder: Ladder,
    entry: TaskEntry,
    task: Task,
    level: int,
    now: float,
    score: float,
    children_s: float,
) -> list[Effect]:
    step = rungs(ladder)[level - 1]
    shares = parts(task, ladder.children) if step.decompose else []
    count = len(shares) or (1 if step.difficulty is None else ladder.children)
    children = tuple(child_id(entry.id, level, index) for index in range(count))
    if step.decompose:
        what = f"of its first stages ({', '.join(map(str, shares))})"
    else:
        what = "with a hint" if step.difficulty is None else f"at difficulty {step.difficulty:g}"
    waits = ladder.join != "none"
    entry.cause = "children" if waits else "replaced"
    entry.reason = f"no sample passed in {entry.failures} attempts; replaced by {count} {what}"
    origin = entry.origin if entry.origin >= 0.0 else task.difficulty
    effects: list[Effect] = []
    if waits:
        entry.children, entry.join, entry.enough = children, ladder.join, ladder.enough
        due_at = now + children_s
        effects += _laid_down(entry, take(state, entry, "parted", now, due_at=due_at))
    else:
        effects += take(state, entry, "replaced", now, score=score, children=children)
    effects += [
        Derive(
            parent=task,
            child_id=child,
            difficulty=step.difficulty,
            hint=step.hint,
            stages=shares[index] if shares else 0,
            level=level,
            index=index,
            seed=child_seed(entry.id, level, index),
            priority=entry.priority,
            trace=entry.trace,
            origin=origin,
            awaited=waits,
        )
        for index, child in enumerate(children)
    ]
    return effects


def _climb(ladder: Ladder, entry: TaskEntry) -> Derive:
    origin = entry.origin if entry.origin >= 0.0 else 1.0
    level, difficulty = above(ladder, entry.level, origin)
    name = climb_id(entry.parent, level)
    return Derive(
        parent=msgspec.structs.replace(_task.decode(entry.body), id=entry.parent),
        child_id=name,
        difficulty=difficulty,
        level=level,
        index=0,
        seed=child_seed(name, level, 0),
        priority=entry.priority,
        trace=entry.trace,
        origin=origin,
        climb=True,
    )


def _why(entry: TaskEntry, fault: Fault) -> str:
    """What took a lost attempt, for the counters."""
    if fault in ("killed", "crash", "death"):
        return "worker_ended"
    if len(entry.results) == entry.group_size:
        return "infra_verdicts"
    if fault == "timeout":
        return "attempt_too_long" if entry.state in HELD else "verdicts_missing"
    return "lease_expired"  # its worker fell silent, or does not name it any more


def _wait(
    state: State, policies: Policies, entry: TaskEntry, happening: Happening, now: float, tries: int
) -> list[Effect]:
    retry = policies.of(entry.domain).retry
    seconds = backoff(entry.id, entry.attempt, tries, retry.backoff_s, retry.backoff_max_s)
    return _again(state, entry, happening, now, seconds)


def _again(state: State, entry: TaskEntry, happening: Happening, now: float, seconds: float) -> list[Effect]:
    return _laid_down(entry, take(state, entry, happening, now, due_at=now + seconds))


def _laid_down(entry: TaskEntry, effects: list[Effect]) -> list[Effect]:
    """Forget the attempt; only after the move, which takes its lease out of the indexes."""
    entry.results = ()
    entry.progress = ()
    entry.lease_id = ""
    entry.worker = ""
    entry.charged_s = 0.0
    entry.drained = entry.given_up = False
    return effects
