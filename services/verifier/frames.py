"""What the pool and its workers say to each other. Invariant: a frame is its length (4 bytes) and one MessagePack struct."""

from __future__ import annotations

import msgspec

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.progress import Committed

LARGEST = 64 << 20
HEAD = 4


class Resume(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where an answer that is judged step by step stands: judge its next stage only.

    `owner`: whose answer it is. `parts`: address of the store of its snapshots. `worker`: name for what gets committed.
    """

    owner: str
    parts: str
    worker: str
    stages: tuple[Committed, ...]


class Request(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One answer to judge."""

    task: Task
    card: Card
    submission: bytes
    answer_limit: int
    resume: Resume | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Its verdict, the seconds its jail runs took (processor and wall), and the worker's memory after it.

    `settled`: no run met a limit of its jail or had a network, so neither another load nor another day changes anything.

    Step by step: `verdict` is None while stages are left, `committed` what to keep; or `damaged` says why stage `back` has
    to be judged again.
    """

    verdict: Verdict | None
    jail_cpu_s: float = 0.0
    jail_wall_s: float = 0.0
    jail_runs: int = 0
    settled: bool = True
    memory_bytes: int = 0
    committed: tuple[Committed, ...] = ()
    damaged: str = ""
    back: int = 0


class Ready(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """First frame of a worker: how it jails, or the one line that says why it cannot."""

    isolation: str = ""
    error: str = ""


def encode(message: msgspec.Struct) -> bytes:
    """The frame of `message`."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(HEAD, "big") + body


def size(head: bytes) -> int:
    """Bytes of the struct that follows `head`. Raises ValueError beyond LARGEST."""
    length = int.from_bytes(head, "big")
    if length > LARGEST:
        raise ValueError(f"a frame of {length} bytes, {LARGEST} are allowed")
    return length
