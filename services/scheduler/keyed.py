"""Word on an idempotency key. Invariant: a submission that was held back enters, is refused or is a repeat, exactly once."""

from __future__ import annotations

import msgspec

from schemas.grants import KeysAnswered
from schemas.tasks import TaskSubmitted
from services.scheduler.effects import Effect
from services.scheduler.intake import enter, key_reused
from services.scheduler.keys import release
from services.scheduler.policies import Policies
from services.scheduler.state import State

_submission = msgspec.msgpack.Decoder(TaskSubmitted)


def answered(state: State, policies: Policies, event: KeysAnswered, now: float) -> list[Effect]:
    """Take the answers in that are of this shard's submissions."""
    effects: list[Effect] = []
    for answer in event.answers:
        pending = release(state, answer.task, answer.key)
        if pending is None:
            continue
        cause, reason = pending.cause, pending.reason
        if answer.first and answer.first != pending.id:
            if answer.content == pending.content.hex():
                state.count("duplicate_task")
                continue
            cause, reason = key_reused(pending.key, answer.first)
        effects += enter(
            state,
            policies,
            _submission.decode(pending.body),
            now,
            content=pending.content,
            cause=cause,
            reason=reason,
            trace=pending.trace,
            eligible_at=pending.at,
            withdrawn=pending.withdrawn,
        )
    return effects
