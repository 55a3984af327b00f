"""What the fold wants done. Invariant: effects are data with deterministic identities; doing one twice changes nothing."""

from __future__ import annotations

import msgspec

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.grants import CreditsGranted, KeyAnswer, KeyAsk, KeysAnswered, KeysAsked, ShardReported
from schemas.ids import group_id
from schemas.states import TaskState
from schemas.tasks import Sampling, Task

_task = msgspec.msgpack.Decoder(Task)


class Assign(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Hand an attempt to its pool. The task stays in its bytes until the event is asked for, which the fold never does."""

    lease_id: str
    lease_expires_at: float
    lease_s: float
    attempt_s: float = 0.0
    task_id: str
    body: bytes
    """The task in MessagePack."""
    attempt: int
    group_size: int
    sampling: Sampling
    """Of the card; the task's own goes first."""
    pool: str
    seq: int
    company: int = 0
    trace: str = ""

    @property
    def event(self) -> AttemptAssigned:
        """What the sampler is told; made anew each time."""
        task = _task.decode(self.body)
        return AttemptAssigned(
            lease_id=self.lease_id,
            lease_expires_at=self.lease_expires_at,
            lease_s=self.lease_s,
            attempt_s=self.attempt_s,
            task=task,
            attempt=self.attempt,
            group_id=group_id(self.task_id, self.attempt),
            group_size=self.group_size,
            sampling=task.sampling or self.sampling,
            pool=self.pool,
            company=self.company,
            seq=self.seq,
        )


class Revoke(msgspec.Struct, frozen=True, kw_only=True):
    """Take a lease back."""

    event: AttemptRevoked
    pool: str
    group_id: str
    trace: str = ""


class Publish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Tell observers where a task is."""

    event: TaskState
    trace: str = ""


class Derive(msgspec.Struct, frozen=True, kw_only=True):
    """Submit a simpler sub-task of a task that kept failing."""

    parent: Task
    child_id: str
    difficulty: float | None
    """Of the new draw; None: the parent itself, made simpler."""
    level: int
    index: int
    seed: int
    priority: int = 0
    trace: str = ""
    hint: str = ""
    """Template of the prompt, see `schemas.cards.Step`; empty: the prompt as it is."""
    stages: int = 0
    """Only the first so many stages of the parent; 0: all."""
    origin: float = 1.0
    """Difficulty at the top of the ladder."""
    climb: bool = False
    awaited: bool = False
    """A live task waits for its end, and must hear if it cannot be made."""


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Write what shards tell each other: a report, a grant, questions about keys or their answers."""

    event: ShardReported | CreditsGranted | KeysAsked | KeysAnswered


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a key's home whose it is."""

    ask: KeyAsk


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Tell whose a key is."""

    answer: KeyAnswer


Effect = Assign | Revoke | Publish | Derive | Tell | Ask | Answer
