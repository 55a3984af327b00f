"""Groups out of two streams that arrive in any order.

Invariant: a group leaves at most once, whatever is duplicated, reordered or read again, and the low-water offsets point
at or before every record of a group that has not left. Trajectories and verdicts are joined by (trajectory id, content
digest); the first verdict of an id wins, as it does in the scheduler. Pure: places, times and versions are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from schemas.rewards import TrajectoryVerified
from schemas.trajectories import TrajectoryCompleted, content_digest, oldest_version
from schemas.verdicts import Verdict, usable


class Place(NamedTuple):
    """Where a record lies in the log; ordered as the log's clock saw them."""

    timestamp_ms: int
    topic: str
    partition: int
    offset: int

    @property
    def source(self) -> str:
        """`topic/partition`."""
        return f"{self.topic}/{self.partition}"


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


class Counts(msgspec.Struct, kw_only=True):
    """What became of what was read."""

    duplicates: int = 0
    """Records of an id that was there already."""
    reread: int = 0
    """Records of finished groups that a restart read again."""
    malformed: int = 0
    """Records, or samples, that contradict themselves."""
    unusable: int = 0
    """Complete groups with too few scores."""
    stale: int = 0
    """Groups rejected for a token older than the bound."""
    expired: int = 0
    """Groups whose missing verdicts did not come in time."""
    consumed: int = 0
    """Groups handed out."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint keeps of the assembly."""

    finished: dict[str, int] = {}
    """Group id -> oldest version, for groups that must not come back."""
    seen: dict[str, int] = {}
    """`topic/partition` -> next offset that had not been read."""
    shortfall: int = 0
    counts: Counts = msgspec.field(default_factory=Counts)


class _Open(msgspec.Struct, kw_only=True):
    """A group that is not complete."""

    domain: str
    size: int
    since: float
    first: dict[str, int] = {}
    last: Place
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


class Assembler:
    """The state of the join."""

    def __init__(
        self,
        *,
        vocabulary: int,
        max_staleness: int,
        timeout_s: float,
        version: int = 0,
        saved: Saved | None = None,
    ) -> None:
        saved = saved or Saved()
        self._vocabulary = vocabulary
        self._max_staleness = max_staleness
        self._timeout_s = timeout_s
        self._open: dict[str, _Open] = {}
        self._ready: dict[str, tuple[Group, dict[str, int]]] = {}
        self._finished = dict(saved.finished)
        self._seen = dict(saved.seen)
        self._version = version
        self.shortfall = saved.shortfall
        """Groups that the scheduler counts as delivered and that were dropped here: a step goes ahead without them."""
        self.counts = msgspec.structs.replace(saved.counts)

    @property
    def ready(self) -> int:
        """Complete groups waiting for a step."""
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """Groups with missing parts."""
        return len(self._open)

    def add_sample(self, sample: TrajectoryCompleted, place: Place, now: float) -> None:
        """Take a trajectory; those of evaluations are not for training."""
        if sample.task.purpose != "train":
            return
        group = self._group(
            sample.group_id, sample.task.domain, place, now, size=sample.group_size, index=sample.index
        )
        if group is None:
            return
        content = content_digest(sample.token_ids, sample.text)
        known = group.samples.setdefault(sample.trajectory_id, {})
        if known:
            self.counts.duplicates += 1
        if content in known:
            return
        fit = sound(sample, self._vocabulary)
        self.counts.malformed += not fit
        known[content] = sample if fit else None
        self._note(group, place)
        self._settle(sample.group_id, group)

    def add_verdict(self, verdict: TrajectoryVerified, place: Place, now: float) -> None:
        """Take a verdict."""
        if verdict.purpose != "train":
            return
        group = self._group(
            verdict.group_id, verdict.domain, place, now, size=verdict.group_size, index=verdict.index
        )
        if group is None:
            return
        if verdict.index in group.verdicts:
            self.counts.duplicates += 1
            return
        score = verdict.verdict.score
        if score is not None and not math.isfinite(score):
            self.counts.malformed += 1
            verdict = msgspec.structs.replace(
                verdict, verdict=msgspec.structs.replace(verdict.verdict, score=None)
            )
        group.verdicts[verdict.index] = verdict
        self._note(group, place)
        self._settle(verdict.group_id, group)

    def expire(self, now: float) -> list[str]:
        """Forget groups that have waited longer than the timeout; returns their ids."""
        overdue = [key for key, group in self._open.items() if now - group.since > self._timeout_s]
        for key in overdue:
            group = self._open.pop(key)
            self.shortfall += group.accepted()
            self._finished[key] = self._version
            self.counts.expired += 1
        return overdue

    def due(self, want: int) -> bool:
        """Whether a step of `want` groups can go ahead."""
        return len(self._ready) + self.shortfall >= want

    def take(self, want: int, version: int) -> list[Group]:
        """Up to `want` groups in the order of their completion, fresh enough for `version`, the policy that will be trained.

        Stale groups on the way are rejected and counted. They make the step smaller and never hold it up: admission
        counts them as delivered, so waiting for others in their place could wait for ever.
        """
        self._version = version
        taken: list[Group] = []
        for group, _ in sorted(self._ready.values(), key=lambda entry: entry[0].completed):
            if len(taken) == want:
                break
            del self._ready[group.id]
            self._finished[group.id] = group.oldest
            if version - group.oldest > self._max_staleness:
                self.counts.stale += 1
                self.shortfall += 1
            else:
                taken.append(group)
        self.shortfall = max(0, self.shortfall - (want - len(taken)))
        self.counts.consumed += len(taken)
        # An older group can come back only to be rejected as stale, so its id need not be kept.
        self._finished = {
            key: oldest for key, oldest in self._finished.items() if version - oldest <= self._max_staleness
        }
        return taken

    def low_water(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Offsets from which a restart sees every record of each group that has not left; `positions`: next offsets to read."""
        low = dict(positions)
        for first in [group.first for group in self._open.values()] + [
            first for _, first in self._ready.values()
        ]:
            for source, offset in first.items():
                low[source] = min(low.get(source, offset), offset)
        return low

    def save(self, positions: Mapping[str, int]) -> Saved:
        """What a checkpoint keeps."""
        return Saved(
            finished=dict(self._finished),
            seen={**self._seen, **positions},
            shortfall=self.shortfall,
            counts=msgspec.structs.replace(self.counts),
        )

    def _group(
        self, key: str, domain: str, place: Place, now: float, *, size: int, index: int
    ) -> _Open | None:
        if key in self._finished or key in self._ready:
            if place.offset < self._seen.get(place.source, 0):
                self.counts.reread += 1
            else:
                self.counts.duplicates += 1
            return None
        group = self._open.get(key)
        if not 0 <= index < size or (group is not None and (group.size, group.domain) != (size, domain)):
            self.counts.malformed += 1
            return None
        if group is None:
            group = self._open[key] = _Open(domain=domain, size=size, since=now, last=place)
        return group

    def _note(self, group: _Open, place: Place) -> None:
        group.first[place.source] = min(group.first.get(place.source, place.offset), place.offset)
        group.last = max(group.last, place)

    def _settle(self, key: str, group: _Open) -> None:
        if len(group.verdicts) < group.size:
            return
        members = [group.member(group.verdicts[index]) for index in sorted(group.verdicts)]
        found = tuple(member for member in members if member is not None)
        if len(found) < group.size:
            return
        del self._open[key]
        valid = [member.trajectory for member in found if member.trajectory is not None]
        oldest = min((oldest_version(sample.spans) for sample in valid), default=self._version)
        if self._version - oldest > self._max_staleness and group.last.offset < self._seen.get(
            group.last.source, 0
        ):
            # Complete before the last checkpoint and this old: it left then, and was counted then.
            self.counts.reread += 1
            self._finished[key] = oldest
            return
        if not usable(len(valid), group.size):
            self.shortfall += group.accepted()
            self.counts.unusable += 1
            self._finished[key] = oldest
            return
        done = Group(id=key, domain=group.domain, members=found, oldest=oldest, completed=group.last)
        self._ready[key] = (done, group.first)
