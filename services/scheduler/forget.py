"""What is forgotten. Invariant: memory is bounded by what lives and by two settings, however long the service runs.

An ended task is remembered for `ended_kept_s` of the fold's own age, and the newest `ended_kept` are remembered at most; those
that were refused (`rejected`) are counted apart, so that a flood of bad submissions never takes the memory of work that was done.
The oldest goes first, in the order in which they ended. What lives needs none of them: a task that waits for sub-tasks keeps
what those came to. The same time and number bound the idempotency keys that are kept for other shards.

Age is not the wall's time: it grows with the fold's clock by `STRIDE_S` at most from one journal entry to the next. A clock that
jumps, or a service that was off for a month, forgets nothing at once.
"""

from __future__ import annotations

from collections import deque

import msgspec

from services.scheduler.policies import Policies
from services.scheduler.records import Ended, Past
from services.scheduler.state import State, under_way

STRIDE_S = 3600.0
WORKERS = 10_000
"""Workers that are remembered at most beside those that hold leases; the longest silent go first."""


def grow_older(state: State, now: float) -> None:
    """Let the fold's age grow on the way to `now`; called before its clock is set."""
    meta = state.meta
    if meta.now > 0.0:
        meta.age += min(max(0.0, now - meta.now), STRIDE_S)


def remember(state: State, ended: Ended) -> None:
    """Keep a terminal task, as the newest of its kind."""
    meta = state.meta
    meta.ends += 1
    ended = msgspec.structs.replace(ended, number=meta.ends, age=meta.age)
    state.ended[ended.id] = ended
    line_of(state, ended).append(ended.id)
    state.changed.add("task:" + ended.id)


def line_of(state: State, ended: Ended) -> deque[str]:
    """The line in which a terminal task waits to be forgotten."""
    return state.refused if ended.state == "rejected" else state.done


def forget(state: State, policies: Policies) -> None:
    """Drop what is too old, and what is too much."""
    before = state.meta.age - policies.ended_kept_s
    for line in (state.done, state.refused):
        while line:
            oldest = state.ended[line[0]]
            if len(line) <= policies.ended_kept and oldest.age >= before:
                break
            line.popleft()
            _drop(state, oldest)
    while state.claimed:
        claim = state.claims[state.claimed[0]]
        if len(state.claimed) <= policies.ended_kept and claim.age >= before:
            break
        del state.claims[state.claimed.popleft()]
        state.changed.add("key:" + claim.key)


def _drop(state: State, ended: Ended) -> None:
    del state.ended[ended.id]
    state.changed.add("task:" + ended.id)
    if ended.key and state.keys.get(ended.key) == ended.id:
        del state.keys[ended.key]
    parent = state.live.get(state.expected.get(ended.id, ""))
    if parent is not None:
        parent.past = (*parent.past, Past(ended.id, ended.state, ended.score))
        state.changed.add("task:" + parent.id)


def forget_silent(state: State, policies: Policies, now: float) -> None:
    """Drop workers that have been silent for `worker_memory_s`, and the longest silent of too many; never one with a lease."""
    many = len(state.workers) - WORKERS
    quiet_s = policies.worker_memory_s if many <= 0 else policies.worker_timeout_s
    quiet = [worker for worker in state.workers.values() if now - worker.seen_at > quiet_s]
    if not quiet:
        return
    holding = {entry.worker for entry in under_way(state)}
    quiet = [worker for worker in quiet if worker.name not in holding]
    quiet.sort(key=lambda worker: (worker.seen_at, worker.name))
    for number, worker in enumerate(quiet):
        if number < many or now - worker.seen_at > policies.worker_memory_s:
            del state.workers[worker.name]
            state.changed.add("worker:" + worker.name)


def forgotten(state: State) -> int:
    """Terminal tasks that are not remembered any more."""
    return sum(state.meta.ended.values()) - len(state.ended)
