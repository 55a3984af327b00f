"""Signs of life and credits. Invariant: a worker names every lease it holds; what it does not name is not its own."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.base import Data, Event

Service = Literal["scheduler", "sampler", "verifier", "trainer", "evaluator", "console"]


class Released(Data, frozen=True, kw_only=True):
    """A lease given back since the last heartbeat."""

    lease_id: str
    reason: Literal["finished", "abandoned", "killed"]
    """`killed`: working on it ended the engine or the worker, by running out of memory for instance."""
    detail: str = ""
    """What happened, one line."""
    company: Annotated[int, Meta(ge=0)] = 0
    """Groups that were in the engine when it failed, this one included; 0: it did not fail, or that is not known."""


class WorkerHeartbeat(Event, frozen=True, kw_only=True):
    """What a worker is doing now. Sent at a fixed period, and at once when leases end."""

    worker: str
    service: Service
    pool: str = ""
    slots: Annotated[int, Meta(ge=0)] = 0
    """Groups (samplers) or jobs (verifiers) it can hold at a time."""
    tokens: Annotated[int, Meta(ge=0)] = 0
    """Tokens that a sampler can hold at a time, all its groups together; 0: no limit."""
    leases: tuple[str, ...] = ()
    running: tuple[str, ...] | None = None
    """Those of the leases whose groups are in the engine, or begin as soon as this is written; None: not said."""
    released: tuple[Released, ...] = ()
    draining: bool = False
    """It takes no more work."""
    policy_version: int = -1
    """Version loaded in the engine; -1 where there is none."""
    refused: dict[str, str] = {}
    """Policy versions whose canary failed, with the reason."""
    offsets: dict[str, int] = {}
    """`topic/partition` -> next offset to read."""
    stats: dict[str, float] = {}
    """Counters and gauges for the live view (tokens, jobs, faults)."""
    ended: Literal["", "exit", "signal", "memory"] = ""
    """Said by whoever supervises the worker when it is gone: how it ended; `memory`: for want of memory."""
    pid: int = 0
    started_at: float = 0.0
