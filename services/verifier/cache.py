"""Verdicts already given. Invariant: a key covers everything a verdict depends on; `infra` is never remembered."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from schemas.cards import Card
from schemas.ids import digest
from schemas.tasks import Task, spec_bytes
from schemas.verdicts import Verdict
from services.verifier.families import VERSION

MOST_BYTES = 64 << 20


def key(task: Task, card: Card, submission: bytes, answer_limit: int, image: str = "") -> str:
    """Digest of task, submission, families' version, the card's verifier table and limits, and the machine's `image`.

    Of the task, what decides: domain and spec. A seed is part of one or the other: in the spec where it is the task's
    own, in the verifier table where it is the card's.
    """
    rules = msgspec.json.encode(
        [VERSION, image, card.verifier, card.limits, answer_limit], order="deterministic"
    )
    parts = (spec_bytes(task), rules, submission)
    return digest(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


class Cache:
    """The most recently used verdicts, at most `size` of them and at most `most_bytes`; size 0 remembers nothing."""

    def __init__(self, size: int, most_bytes: int = MOST_BYTES) -> None:
        self.size, self._most_bytes = size, most_bytes
        # Encoded: a tenth of the memory of the objects, and a size that can be bounded.
        self._verdicts: OrderedDict[str, bytes] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, key: str) -> Verdict | None:
        """The verdict under `key`, which becomes the most recently used."""
        raw = self._verdicts.get(key)
        if raw is None:
            return None
        self._verdicts.move_to_end(key)
        return msgspec.msgpack.decode(raw, type=Verdict)

    def put(self, key: str, verdict: Verdict) -> None:
        """Remember a verdict that carries a score."""
        if self.size == 0 or verdict.outcome == "infra":
            return
        self.drop(key)
        raw = msgspec.msgpack.encode(verdict)
        self._verdicts[key] = raw
        self.bytes += len(raw)
        while len(self._verdicts) > self.size or self.bytes > self._most_bytes:
            _, old = self._verdicts.popitem(last=False)
            self.bytes -= len(old)

    def drop(self, key: str) -> None:
        """Forget what is under `key`."""
        self.bytes -= len(self._verdicts.pop(key, b""))


class Share:
    """Every so-many-th of a stream, without chance: `take()` is true for the given share of calls, evenly spread."""

    def __init__(self, share: float) -> None:
        self._share, self._sum = share, 0.0

    def take(self) -> bool:
        """Whether this call is one of the share."""
        self._sum += self._share
        if self._sum < 1.0 - 1e-9:
            return False
        self._sum -= 1.0
        return True
