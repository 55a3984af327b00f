"""What samplers emit. Invariant: token ids and log-probabilities are the truth; text is derived from them, never the reverse."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import Data, Event
from schemas.ids import digest
from schemas.tasks import Task

Finish = Literal["stop", "length", "abort"]


class Span(Data, frozen=True, kw_only=True):
    """Sampled tokens [start, end) that one policy version produced."""

    version: Annotated[int, Meta(ge=0)]
    start: Annotated[int, Meta(ge=0)]
    end: Annotated[int, Meta(ge=0)]


class BlobRef(Data, frozen=True, kw_only=True):
    """A payload in the blob store."""

    uri: str
    digest: str
    """SHA-256 of the payload; readers check it."""
    size: Annotated[int, Meta(ge=0)]


class TrajectoryCompleted(Event, frozen=True, kw_only=True):
    """One finished sample of a group."""

    trajectory_id: str
    task: Task
    attempt: int
    group_id: str
    group_size: int
    index: Annotated[int, Meta(ge=0)]
    lease_id: str
    prompt_ids: list[int]
    token_ids: list[int]
    """What the sampler emitted, end token included where it was sampled."""
    logprobs: list[float]
    """Log-probability of each sampled token under the policy and temperature that sampled it; length of `token_ids`."""
    spans: tuple[Span, ...]
    """Cover `token_ids` without gap or overlap."""
    finish: Finish
    text: str
    """Decoded answer; verifiers read this, trainers never do."""
    text_ref: BlobRef | None = None
    """Where the answer is when it exceeds the inline limit; `text` is empty then."""
    worker: str = ""
    queued_s: float = 0.0
    """Seconds between assignment and the first token."""
    duration_s: float = 0.0
    """Seconds from first to last token."""


class TurnCompleted(Event, frozen=True, kw_only=True):
    """One turn of a multi-turn trajectory, before its continuation."""

    trajectory_id: str
    task_id: str
    attempt: int
    turn: Annotated[int, Meta(ge=0)]
    token_ids: list[int]
    logprobs: list[float]
    spans: tuple[Span, ...]
    text: str


class TrajectoryAbandoned(Event, frozen=True, kw_only=True):
    """A sample that will not be finished under its lease; costs no attempt when the worker was told to stop."""

    trajectory_id: str
    task_id: str
    domain: str
    purpose: Literal["train", "eval"]
    attempt: int
    group_id: str
    group_size: int
    index: int
    lease_id: str
    reason: Literal["drain", "revoked", "expired", "engine", "too_long", "refused"]
    detail: str = ""


def content_digest(token_ids: list[int], text: str) -> str:
    """Digest that ties a verdict to the very sample it was given for."""
    return digest(msgspec.msgpack.encode([token_ids, text]))[:32]


def oldest_version(spans: tuple[Span, ...]) -> int:
    """Lowest policy version among `spans`, 0 if there is none."""
    return min((span.version for span in spans), default=0)
