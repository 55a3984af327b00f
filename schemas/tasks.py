"""Tasks and what steers them. Invariant: a task is immutable once submitted; everything a verifier needs is in it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from schemas.base import Data, Event

Difficulty = Annotated[float, Meta(ge=0.0, le=1.0)]
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Identifier = Annotated[str, Meta(min_length=1, max_length=128)]
Purpose = Literal["train", "eval"]
Kind = Annotated[str, Meta(max_length=64)]
"""Word for tasks of a domain that take about equally long (a template, a family); few a domain. Empty: by difficulty."""


class Sample(Data, frozen=True, kw_only=True):
    """What a generator returns: a prompt, what its verifier needs, the gold answer, and plausible wrong ones."""

    prompt: str
    spec: dict[str, Any]
    """Never shown to the model and never laid into a jail as a whole."""
    gold: str
    slips: tuple[str, ...] = ()
    """Wrong answers a weak model gives, the most systematic first; used to build base models only."""
    difficulty: Difficulty = 0.5
    kind: Kind = ""


class Sampling(Data, frozen=True, kw_only=True):
    """How one attempt is sampled; the card's values unless a task says otherwise."""

    temperature: Annotated[float, Meta(ge=0.0, le=10.0)] = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    max_tokens: Annotated[int, Meta(ge=1, le=1_048_576)] = 64
    """Upper bound on sampled tokens, the end token included."""


class PolicyRef(Data, frozen=True, kw_only=True):
    """A checkpoint by number and place."""

    version: Annotated[int, Meta(ge=0)]
    uri: str
    digest: str
    """SHA-256 of the weight file."""


class Task(Data, frozen=True, kw_only=True):
    """One prompt with what its verifier needs."""

    id: Identifier
    domain: Name
    prompt: str
    """Rendered prompt text, the card's template applied."""
    system: str = ""
    """System message for models with a chat template."""
    spec: dict[str, Any] = {}
    difficulty: Difficulty = 0.5
    purpose: Purpose = "train"
    sampling: Sampling | None = None
    group_size: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Samples an attempt; the run's group size if unset."""
    policy: PolicyRef | None = None
    """Set when the task must be sampled from one exact checkpoint, as evaluations are."""
    batch: str = ""
    """Free label by which a producer finds its tasks again (an evaluation's id, a submission's name)."""
    pool: Annotated[str, Meta(max_length=128)] = ""
    """Sampler pool that must serve the task; the run's pool if empty."""
    kind: Kind = ""


class TaskSubmitted(Event, frozen=True, kw_only=True):
    """A task enters the system. Written by outside producers, the command line, the evaluator, and the scheduler (sub-tasks)."""

    task: Task
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    """Higher goes first: each point shifts the virtual deadline one second earlier."""
    idempotency_key: Annotated[str, Meta(max_length=256)] = ""
    """Submitting the same key again with the same content is a no-op; the task's id if unset."""
    parent: str = ""
    """Id of the task this one simplifies."""
    level: Annotated[int, Meta(ge=0, le=16)] = 0
    """Rungs down the card's ladder; 0 for a task that was submitted as it is."""
    origin: Difficulty | None = None
    """Difficulty of the task at the top of the ladder, for sub-tasks."""
    climb: bool = False
    """A new try one rung up, after a simpler task passed; it has no sub-tasks of its own."""
    again: Annotated[str, Meta(max_length=128)] = ""
    """Id of the ended task that this one repeats on demand: it is admitted even if their batch was cancelled since."""


class TaskCancelled(Event, frozen=True, kw_only=True):
    """Stop working on a task (`task_id`), or on all tasks with a batch label (`batch`), those still to come included."""

    task_id: str = ""
    batch: str = ""
    reason: str = ""
    parent: str = ""
    """Of a sub-task that cannot be made: the task that it was to simplify, or to try again. Only the scheduler says this."""


class DomainPaused(Event, frozen=True, kw_only=True):
    """Dispatch nothing more of a domain; what runs goes on."""

    domain: Name
    reason: str = ""


class DomainResumed(Event, frozen=True, kw_only=True):
    """Dispatch a paused domain again."""

    domain: Name


class DomainDrained(Event, frozen=True, kw_only=True):
    """Dispatch nothing more of a domain and take back what runs; its tasks wait for `DomainResumed`, at no cost to them."""

    domain: Name
    reason: str = ""


class PoolDrained(Event, frozen=True, kw_only=True):
    """Give no more leases to a sampler pool; what runs goes on."""

    pool: Name
    reason: str = ""


class PoolResumed(Event, frozen=True, kw_only=True):
    """Give leases to a drained pool again."""

    pool: Name


class QuotaChanged(Event, frozen=True, kw_only=True):
    """What a domain owns of the sampler slots, may borrow of its cohort and lends to it. See `schemas.cards.Quota`."""

    domain: Name
    nominal: Annotated[int, Meta(ge=0)]
    """0 lifts the limit; within a cohort, the domain then owns nothing."""
    borrow: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Unset: as it was."""
    lend: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Unset: as it was."""


def spec_bytes(task: Task) -> bytes:
    """Canonical bytes of what decides a task's verdicts: domain and spec, keys sorted."""
    return msgspec.json.encode([task.domain, task.spec], order="deterministic")
