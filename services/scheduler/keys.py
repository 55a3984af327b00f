"""Idempotency keys over all shards. Invariant: a key has one home, and what its home took first is first for everybody.

Submissions with one key may be of domains in different shards, and shards may read them in different orders. So the home, which
follows from the key alone, decides: a shard that gets a submission whose key is at home elsewhere holds it back, asks, and goes
on when the answer comes, with the eligibility of its arrival. Questions and answers are events; one asked or answered twice
changes nothing. With one shard nothing is ever asked.

A shard remembers the keys of its own tasks as long as the tasks, and those of others that were at home here as long (`forget`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import batched

import msgspec

from schemas.grants import KeyAnswer, KeyAsk, KeysAnswered, KeysAsked
from schemas.ids import digest
from schemas.states import Cause
from schemas.tasks import TaskSubmitted
from services.scheduler.effects import Answer, Ask, Effect, Tell
from services.scheduler.policies import Policies
from services.scheduler.records import Claim, Pending
from services.scheduler.state import State

IN_ONE = 400
"""Questions or answers in one event: keys and ids may be long."""
_encoder = msgspec.msgpack.Encoder()


def home_of(key: str, shards: int) -> int:
    """The shard that decides whose a key is."""
    return int(digest(key.encode())[:12], 16) % shards


def elsewhere(policies: Policies, key: str) -> bool:
    """Whether another shard decides whose a key is."""
    return policies.shards > 1 and bool(key) and home_of(key, policies.shards) != policies.shard


def first_use(state: State, key: str) -> tuple[str, bytes] | None:
    """The task that has a key, as far as this shard knows, and the digest of its submission."""
    if not key:
        return None
    name = state.keys.get(key)
    if name is not None:
        known = state.live.get(name) or state.ended.get(name)
        if known is not None:
            return name, known.content
    claim = state.claims.get(key)
    return None if claim is None else (claim.task, claim.content)


def hold(
    state: State,
    event: TaskSubmitted,
    now: float,
    *,
    content: bytes,
    cause: Cause,
    reason: str,
    trace: str,
) -> list[Effect]:
    """Hold a submission back until its key's home has answered; with a cause it will be refused unless it is a repeat."""
    task, key = event.task, event.idempotency_key
    pending = Pending(
        id=task.id,
        domain=task.domain,
        key=key,
        body=_encoder.encode(event),
        content=content,
        at=now,
        trace=trace,
        cause=cause,
        reason=reason,
    )
    keep(state, pending)
    state.changed.add("asked:" + task.id)
    return [Ask(ask=KeyAsk(key=key, task=task.id, content=content.hex(), claim=not cause))]


def keep(state: State, pending: Pending) -> None:
    """Put a submission that is held back under the indexes."""
    state.pending[pending.id] = pending
    state.pending_in[pending.domain] = state.pending_in.get(pending.domain, 0) + 1


def release(state: State, task_id: str, key: str) -> Pending | None:
    """Take a submission that was held back for this key out again; None where none is."""
    pending = state.pending.get(task_id)
    if pending is None or pending.key != key:
        return None
    del state.pending[task_id]
    left = state.pending_in[pending.domain] - 1
    if left:
        state.pending_in[pending.domain] = left
    else:
        del state.pending_in[pending.domain]
    state.changed.add("asked:" + task_id)
    return pending


def withdraw(state: State, task_id: str, reason: str) -> bool:
    """Cancel a submission that is held back; whether there is one."""
    pending = state.pending.get(task_id)
    if pending is None:
        return False
    pending.withdrawn = reason or "cancelled"
    state.changed.add("asked:" + task_id)
    return True


def judge(state: State, policies: Policies, event: KeysAsked) -> list[Effect]:
    """Answer what is asked of this shard."""
    found: list[Effect] = []
    for ask in event.asks:
        if home_of(ask.key, policies.shards) != policies.shard:
            continue
        first = first_use(state, ask.key)
        if first is None and ask.claim:
            first = (ask.task, bytes.fromhex(ask.content))
            _claim(state, ask, first[1])
        name, content = first or ("", b"")
        found.append(Answer(answer=KeyAnswer(task=ask.task, key=ask.key, first=name, content=content.hex())))
    return found


def _claim(state: State, ask: KeyAsk, content: bytes) -> None:
    state.meta.claimed += 1
    meta = state.meta
    state.claims[ask.key] = Claim(
        key=ask.key, task=ask.task, content=content, number=meta.claimed, age=meta.age
    )
    state.claimed.append(ask.key)
    state.changed.add("key:" + ask.key)


def gathered(effects: Iterable[Effect], shard: int) -> list[Effect]:
    """The effects with all questions in few events, and all answers."""
    kept: list[Effect] = []
    asks: list[KeyAsk] = []
    answers: list[KeyAnswer] = []
    for effect in effects:
        match effect:
            case Ask(ask=ask):
                asks.append(ask)
            case Answer(answer=answer):
                answers.append(answer)
            case _:
                kept.append(effect)
    kept += [Tell(event=KeysAsked(shard=shard, asks=part)) for part in batched(asks, IN_ONE)]
    kept += [Tell(event=KeysAnswered(shard=shard, answers=part)) for part in batched(answers, IN_ONE)]
    return kept
