"""How far one long answer has come: the stages that are committed, as one small record.

Invariant: pure. A record only goes forward, in the order of `rank`: more committed stages (or, at the same one, more
deliveries), or a restart that was declared because a snapshot was lost. So of two workers with the same answer the one that
is further stands, whoever writes last, and a committed stage is run again only under a restart, whose reason the record names.
"""

from __future__ import annotations

import msgspec

from schemas.ids import derive, digest
from schemas.verdicts import StageResult

FORMAT = 1
SUM_DIGITS = 16


class DamagedRecordError(ValueError):
    """Bytes that are no record of this answer; the message is one line."""


class Committed(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One stage whose result stands. `taken`: commands of the answer used up to its end."""

    result: StageResult
    taken: int
    worker: str = ""
    runs: int = 0
    """Jail runs that it took."""
    duration_s: float = 0.0
    settled: bool = True
    """As of a verdict: no run met its wall limit or had a network."""
    note: str = ""
    """Why it was run although it had been committed before, if it was."""


class Progress(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """`idle`: deliveries of the answer since the last commit. `again`: stages that had been committed before the restart."""

    stages: tuple[Committed, ...] = ()
    restarts: int = 0
    idle: int = 0
    again: int = 0
    note: str = ""
    """Why it was restarted."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """What makes one record further than another."""
        return self.restarts, len(self.stages), self.idle

    @property
    def base(self) -> int:
        """The stage whose snapshot the next one starts from; -1 if there is none, and it starts from the task's files."""
        passed = [number for number, each in enumerate(self.stages) if each.result.snapshot is not None]
        return passed[-1] if passed else -1

    @property
    def snapshot(self) -> str:
        """Id of that snapshot; empty if there is none."""
        return (self.stages[self.base].result.snapshot or "") if self.base >= 0 else ""

    def committed(self, more: tuple[Committed, ...]) -> Progress:
        """With the next stages. One that had been committed before a restart says so."""
        first = len(self.stages)
        told = tuple(
            msgspec.structs.replace(each, note=self.note) if number < self.again else each
            for number, each in enumerate(more, first)
        )
        return msgspec.structs.replace(self, stages=self.stages + told, idle=0)

    def delivered(self) -> Progress:
        """Handed to a worker once more since the last commit."""
        return msgspec.structs.replace(self, idle=self.idle + 1)

    def back_to(self, stage: int, why: str) -> Progress:
        """Restarted: from `stage` on nothing is committed any more. Raises ValueError if it was not committed."""
        if not 0 <= stage < len(self.stages):
            raise ValueError(f"stage {stage} is not among the {len(self.stages)} committed")
        return msgspec.structs.replace(
            self,
            stages=self.stages[:stage],
            restarts=self.restarts + 1,
            again=max(self.again, len(self.stages)),
            note=why,
        )


def record_key(owner: str, answer: str) -> str:
    """Name of the record: `owner` is the trajectory with its content, `answer` the cache key of task, card, answer, image."""
    return digest(f"{owner}\n{answer}".encode())


def encode(key: str, progress: Progress) -> bytes:
    """The record's bytes, with a checksum over them and the name."""
    body = msgspec.msgpack.encode(progress)
    return msgspec.msgpack.encode((FORMAT, _sum(key, body), body))


def decode(key: str, data: bytes) -> Progress:
    """The record of that name. Raises DamagedRecordError."""
    try:
        version, check, body = msgspec.msgpack.decode(data, type=tuple[int, str, bytes])
        if version != FORMAT:
            raise DamagedRecordError(f"record {key[:12]} has format {version}: this version reads {FORMAT}")
        if check != _sum(key, body):
            raise DamagedRecordError(f"record {key[:12]} is damaged: its bytes do not match their checksum")
        return msgspec.msgpack.decode(body, type=Progress)
    except msgspec.MsgspecError as error:
        raise DamagedRecordError(f"record {key[:12]} is damaged: {error}") from error


def _sum(key: str, body: bytes) -> str:
    return derive("progress", key, digest(body))[:SUM_DIGITS]
