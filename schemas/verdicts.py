"""What a verifier says. Invariant: a score is finite in [0, 1], and exactly the outcomes `scored` and `invalid` carry one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.base import Data
from schemas.ids import digest

Outcome = Literal["scored", "invalid", "infra"]
EVIDENCE_LIMIT = 400
"""Characters of evidence kept in a part; the rest is in the blob store or nowhere."""


class Part(Data, frozen=True, kw_only=True):
    """One weighted component of a score."""

    name: str
    weight: Annotated[float, Meta(ge=0.0)]
    score: Annotated[float, Meta(ge=0.0, le=1.0)]
    evidence: str = ""


class StageResult(Data, frozen=True, kw_only=True):
    """What became of one stage of a long-horizon task."""

    name: str
    weight: Annotated[float, Meta(ge=0.0)]
    score: Annotated[float, Meta(ge=0.0, le=1.0)]
    passed: bool
    cause: str = ""
    """How the stage's command ended: `exit 0`, `signal 9`, `wall`, ..."""
    evidence: str = ""
    snapshot: str | None = None
    """Digest of the state committed after the stage; None when it was rolled back."""


class Verdict(Data, frozen=True, kw_only=True):
    """Outcome, score and the evidence for it."""

    outcome: Outcome
    score: float | None
    passed: bool
    parts: tuple[Part, ...] = ()
    stages: tuple[StageResult, ...] = ()
    evidence: str = ""
    digest: str = ""
    """Digest of everything above: the same input gives the same digest."""


def _sealed(verdict: Verdict) -> Verdict:
    body = msgspec.structs.replace(verdict, digest="")
    return msgspec.structs.replace(
        verdict, digest=digest(msgspec.json.encode(body, order="deterministic"))[:32]
    )


def scored(
    parts: Iterable[Part],
    *,
    passed: bool | None = None,
    gate: float = 1.0,
    stages: Iterable[StageResult] = (),
    evidence: str = "",
) -> Verdict:
    """A verdict with score `gate * sum(weight * score) / sum(weight)`.

    `passed` defaults to "every part with weight scored 1 and the gate is 1".

    Raises:
        ValueError: no part has weight, or a number is not finite or outside [0, 1].
    """
    parts = tuple(parts)
    total = sum(part.weight for part in parts)
    if not math.isfinite(total) or total <= 0.0:
        raise ValueError("a verdict needs at least one part with a positive finite weight")
    for part in parts:
        if not (math.isfinite(part.score) and 0.0 <= part.score <= 1.0):
            raise ValueError(f"part {part.name!r} has score {part.score!r}, outside [0, 1]")
    if not (math.isfinite(gate) and 0.0 <= gate <= 1.0):
        raise ValueError(f"gate {gate!r} is outside [0, 1]")
    score = min(1.0, max(0.0, gate * sum(part.weight * part.score for part in parts) / total))
    if passed is None:
        passed = gate == 1.0 and all(part.score == 1.0 for part in parts if part.weight > 0.0)
    return _sealed(
        Verdict(
            outcome="scored", score=score, passed=passed, parts=parts, stages=tuple(stages), evidence=evidence
        )
    )


def invalid(evidence: str, *, stages: Iterable[StageResult] = ()) -> Verdict:
    """The model's fault before anything could be scored (unparsable, too long, refused): score 0."""
    return _sealed(
        Verdict(outcome="invalid", score=0.0, passed=False, stages=tuple(stages), evidence=evidence)
    )


def infra(evidence: str) -> Verdict:
    """Our fault: no score; the attempt is retried within its budget, then masked from loss and statistics."""
    return _sealed(Verdict(outcome="infra", score=None, passed=False, evidence=evidence))


def annotated(verdict: Verdict, note: str) -> Verdict:
    """The verdict with `note` in front of its evidence."""
    evidence = f"{note}; {verdict.evidence}" if verdict.evidence else note
    return _sealed(msgspec.structs.replace(verdict, evidence=clip(evidence)))


def clip(text: str, limit: int = EVIDENCE_LIMIT) -> str:
    """`text` cut to `limit` characters with the cut marked, unprintable characters escaped."""
    shown = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def usable(valid: int, group_size: int) -> bool:
    """Whether a group of which `valid` members have a score can be learned from or counted.

    A group of one needs its one member; a larger one needs two, since a single member has no group to compare with.
    """
    return valid >= min(2, group_size)
