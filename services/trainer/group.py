"""Groups, whole or with parts missing. Invariant: a member's trajectory is the very sample its verdict was given for."""

from __future__ import annotations

import math

import msgspec

from schemas.rewards import TrajectoryVerified
from schemas.trajectories import TrajectoryCompleted
from schemas.verdicts import Verdict, usable
from services.trainer.place import Place


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a complete group."""

    index: int
    verdict: Verdict
    trajectory: TrajectoryCompleted | None
    """None for a masked member: no score, or a trajectory that cannot be trained on."""

    @property
    def reward(self) -> float | None:
        """The score, None when masked."""
        return None if self.trajectory is None else self.verdict.score


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All verdicts of one attempt, members by index."""

    id: str
    domain: str
    members: tuple[Member, ...]
    oldest: int
    """Lowest policy version that sampled a token of it."""
    completed: Place
    """The last of the records that completed it."""
    trace: str = ""
    """W3C context of a record of it."""


class Incomplete(msgspec.Struct, kw_only=True):
    """A group that is not complete."""

    task: str
    attempt: int
    domain: str
    size: int
    heard: float
    first: dict[str, int] = {}
    last: Place
    trace: str = ""
    verdicts: dict[int, TrajectoryVerified] = {}
    samples: dict[str, dict[str, TrajectoryCompleted | None]] = {}
    """Trajectory id -> content -> sample; None where it cannot be trained on."""

    def member(self, verdict: TrajectoryVerified) -> Member | None:
        """The member of a verdict, None while its sample is missing."""
        if verdict.verdict.outcome == "infra" or verdict.verdict.score is None:
            return Member(index=verdict.index, verdict=verdict.verdict, trajectory=None)
        found = self.samples.get(verdict.trajectory_id, {})
        if verdict.content not in found:
            return None
        return Member(index=verdict.index, verdict=verdict.verdict, trajectory=found[verdict.content])

    def accepted(self) -> bool:
        """Whether the scheduler's admission counts the group: all verdicts are in, and enough of them carry a score."""
        scored = sum(verdict.verdict.score is not None for verdict in self.verdicts.values())
        return len(self.verdicts) == self.size and usable(scored, self.size)


def sound(sample: TrajectoryCompleted, vocabulary: int) -> bool:
    """Whether a sample can be trained on: known ids, one finite log-probability a token, spans that cover the tokens."""
    size = len(sample.token_ids)
    edge = 0
    for span in sample.spans:
        if span.start != edge or span.end <= span.start:
            return False
        edge = span.end
    return (
        size > 0
        and len(sample.prompt_ids) > 0
        and len(sample.logprobs) == size
        and edge == size
        and all(math.isfinite(value) for value in sample.logprobs)
        and all(0 <= token < vocabulary for token in (*sample.prompt_ids, *sample.token_ids))
    )
