"""Verdicts already given. Invariant: a key covers everything a verdict depends on; `infra` is never remembered."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from schemas.cards import Card
from schemas.ids import digest
from schemas.tasks import Task, spec_bytes
from schemas.verdicts import Verdict
from services.verifier.families import VERSION


def key(task: Task, card: Card, submission: bytes, answer_limit: int) -> str:
    """Digest of task (domain and spec), submission, families' version, the card's verifier table and limits."""
    rules = msgspec.json.encode([VERSION, card.verifier, card.limits, answer_limit], order="deterministic")
    parts = (spec_bytes(task), rules, submission)
    return digest(b"".join(len(part).to_bytes(8, "big") + part for part in parts))


class Cache:
    """The most recently used verdicts, at most `size`; size 0 remembers nothing."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, key: str) -> Verdict | None:
        """The verdict under `key`, which becomes the most recently used."""
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        """Remember a verdict that carries a score."""
        if self.size == 0 or verdict.outcome == "infra":
            return
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > self.size:
            self._verdicts.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forget what is under `key`."""
        self._verdicts.pop(key, None)


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
