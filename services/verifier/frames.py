"""What the pool and its workers say to each other. Invariant: a frame is its length (4 bytes) and one MessagePack struct."""

from __future__ import annotations

import msgspec

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict

LARGEST = 64 << 20
HEAD = 4


class Request(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One answer to judge."""

    task: Task
    card: Card
    submission: bytes
    answer_limit: int


class Reply(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Its verdict, the seconds its jail runs took (processor and wall), and the worker's memory after it.

    `settled`: no run ended at its wall limit or had a network, so neither another load nor another day changes anything.
    """

    verdict: Verdict
    jail_cpu_s: float = 0.0
    jail_wall_s: float = 0.0
    jail_runs: int = 0
    settled: bool = True
    memory_bytes: int = 0


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
