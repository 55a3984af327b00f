"""The fold. Invariant: no clock, no I/O, no chance; equal states and equal batches give equal states and equal effects.

The state is changed in place (it has one owner, and copying it for each event would cost more than the event).
"""

from __future__ import annotations

import msgspec

from schemas.base import Event
from schemas.checkpoints import CheckpointPublished
from schemas.grants import CreditsGranted, KeysAnswered, KeysAsked, ShardReported
from schemas.heartbeats import WorkerHeartbeat
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.tasks import (
    DomainDrained,
    DomainPaused,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
    TaskCancelled,
    TaskSubmitted,
)
from services.runtime.errors import Unavailable
from services.scheduler import mix
from services.scheduler.admission import published
from services.scheduler.attempts import advanced, expired, verified
from services.scheduler.controls import control
from services.scheduler.dispatch import dispatch
from services.scheduler.effects import Effect
from services.scheduler.forget import forget, forget_silent, grow_older
from services.scheduler.grants import hear, obey, settle
from services.scheduler.intake import submit
from services.scheduler.keyed import answered
from services.scheduler.keys import gathered, judge
from services.scheduler.policies import Policies
from services.scheduler.state import State, due, next_due
from services.scheduler.withdraw import cancel
from services.scheduler.workers import heartbeat


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log."""

    event: Event
    at: float = 0.0
    """Seconds since the epoch at which its record was written."""
    trace: str = ""
    topic: str = ""
    """Where its record lies, for who has to look at it."""
    partition: int = 0
    offset: int = 0


class FoldError(Unavailable):
    """The fold cannot take a record: a fault of this program. The message says where the record lies."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one journal entry stands for: its inputs in order, and the only clock the fold sees."""

    seq: int
    now: float
    epoch: int = 0
    caught_up: bool = True
    offsets: dict[str, int] = {}
    """`topic/partition` -> next offset, for the partitions that moved."""
    inputs: tuple[Input, ...] = ()


def fold(  # noqa: PLR0911 (a case for each event)
    state: State, policies: Policies, event: Event, now: float, *, at: float | None = None, trace: str = ""
) -> list[Effect]:
    """Take one event into the state; what is to be done because of it. Never raises for what an event says."""
    match event:
        case TaskSubmitted():
            return submit(state, policies, event, now, trace)
        case TrajectoryVerified():
            return verified(state, policies, event, now)
        case StageVerified():
            return advanced(state, policies, event, now)
        case WorkerHeartbeat():
            return heartbeat(state, policies, event, now, now if at is None else at)
        case TaskCancelled():
            return cancel(state, policies, event, now, trace)
        case (
            DomainPaused()
            | DomainResumed()
            | DomainDrained()
            | QuotaChanged()
            | PoolDrained()
            | PoolResumed()
        ):
            return control(state, policies, event, now)
        case CheckpointPublished():
            return published(state, policies, event)
        case CreditsGranted():
            return obey(state, policies, event)
        case ShardReported():
            return hear(state, policies, event)
        case KeysAsked():
            return judge(state, policies, event)
        case KeysAnswered():
            return answered(state, policies, event, now)
        case _:
            return []


def tick(state: State, policies: Policies, now: float) -> list[Effect]:
    """Let time pass: leases expire, verification deadlines pass, backoffs end, free slots are given out."""
    effects: list[Effect] = []
    for entry in due(state, now):
        effects += expired(state, policies, entry, now)
    forget_silent(state, policies, now)
    mix.update(state, policies)
    effects += dispatch(state, policies, now)
    effects += settle(state, policies, now)
    return effects


def step(state: State, policies: Policies, batch: Batch) -> list[Effect]:
    """Take one journal entry into the state.

    Time never runs backwards here: a batch stamped earlier than its predecessor counts at the predecessor's time.
    While a backlog is read nothing expires, since the renewals that follow in the log have not been seen yet.
    """
    meta = state.meta
    now = max(meta.now, batch.now)
    grow_older(state, now)
    meta.seq, meta.epoch, meta.now = batch.seq, batch.epoch, now
    meta.offsets |= batch.offsets
    meta.policies = policies.digest() if not meta.policies else meta.policies
    effects: list[Effect] = []
    for item in batch.inputs:
        at = now if batch.caught_up else min(item.at, now)
        try:
            effects += fold(state, policies, item.event, now, at=at, trace=item.trace)
        except Exception as error:
            raise _failed(
                f"{item.event.type_name()} at {item.topic}/{item.partition} offset {item.offset}",
                batch,
                error,
            ) from error
    try:
        if batch.caught_up:
            effects += tick(state, policies, now)
        forget(state, policies)
    except Exception as error:
        raise _failed("what time does", batch, error) from error
    if policies.shards > 1:
        effects = gathered(effects, policies.shard)
    return effects


def _failed(what: str, batch: Batch, error: Exception) -> FoldError:
    return FoldError(
        f"the fold cannot take {what} (journal entry {batch.seq} of epoch {batch.epoch}): {type(error).__name__}: {error}; "
        "this is a fault of the scheduler: report it with that record. The log is whole and nothing was acted on: start a "
        "version that takes it, or begin a new log with another TEMPER_PREFIX"
    )


def pending(state: State, now: float) -> bool:
    """Whether time alone changes something by `now`."""
    first = next_due(state)
    return first is not None and first <= now
