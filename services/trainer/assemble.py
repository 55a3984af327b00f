"""Groups out of two streams that arrive in any order.

Invariant: a group leaves at most once, whatever is duplicated, reordered or read again, and the low-water offsets point
at or before every record of a group that has not left. Trajectories and verdicts are joined by (trajectory id, content
digest); the first verdict of an id wins, as it does in the scheduler. Pure: places, times and versions are arguments.

A group waits for its missing parts as long as its attempt may bring them: until the scheduler's states say that the attempt is
over, and all it left was read (see `attempts`). Time is a last resort, for a group whose end nobody tells: no word of it for as
long as an attempt may take by its card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from schemas.rewards import TrajectoryVerified
from schemas.states import TaskState
from schemas.trajectories import TrajectoryCompleted, content_digest, oldest_version
from schemas.verdicts import usable
from services.trainer.attempts import Attempts
from services.trainer.group import Group, Incomplete, sound
from services.trainer.place import Place


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
    """Groups of which nothing was heard for longer than their attempt may take."""
    ended: int = 0
    """Groups whose attempt ended without completing them."""
    late: int = 0
    """Records of attempts that were over."""
    consumed: int = 0
    """Groups handed out."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint keeps of the assembly."""

    finished: dict[str, int] = {}
    """Group id -> oldest version, for groups that must not come back."""
    seen: dict[str, int] = {}
    """`topic/partition` -> next offset that had not been read."""
    shortfall: int = 0
    under_way: dict[str, int] = {}
    """Task -> its attempt that is under way."""
    counts: Counts = msgspec.field(default_factory=Counts)


class Assembler:
    """The state of the join."""

    def __init__(
        self,
        *,
        vocabulary: int,
        max_staleness: int,
        timeout_s: float,
        timeouts: Mapping[str, float] | None = None,
        version: int = 0,
        saved: Saved | None = None,
    ) -> None:
        """`timeouts`: seconds without a word after which a group of a domain is forgotten in any case; `timeout_s` for others."""
        saved = saved or Saved()
        self._vocabulary = vocabulary
        self._max_staleness = max_staleness
        self._timeout_s, self._timeouts = timeout_s, dict(timeouts or {})
        self.attempts = Attempts(saved.under_way)
        self._open: dict[str, Incomplete] = {}
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

    @property
    def longest_s(self) -> float:
        """Seconds that an attempt of any domain may take."""
        return max([self._timeout_s, *self._timeouts.values()])

    def add_sample(self, sample: TrajectoryCompleted, place: Place, now: float, trace: str = "") -> None:
        """Take a trajectory; those of evaluations are not for training. `trace`: its record's W3C context."""
        if sample.task.purpose != "train":
            return
        group = self._group(sample, sample.task.id, sample.task.domain, place, now)
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
        self._note(group, place, trace)
        self._settle(sample.group_id, group)

    def add_verdict(self, verdict: TrajectoryVerified, place: Place, now: float, trace: str = "") -> None:
        """Take a verdict; `trace`: its record's W3C context."""
        if verdict.purpose != "train":
            return
        group = self._group(verdict, verdict.task_id, verdict.domain, place, now)
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
        self._note(group, place, trace)
        self._settle(verdict.group_id, group)

    def add_stage(self, group_id: str, now: float) -> None:
        """A stage of one of a group's samples was verified: the verdicts have their time anew."""
        if group_id in self._open:
            self._open[group_id].heard = now

    def add_state(self, state: TaskState, place: Place) -> None:
        """Take what the scheduler says of a task."""
        if state.purpose == "train":
            self.attempts.note(state, place)

    def close(self) -> list[str]:
        """All was read that was in the log when the ends of attempts were sealed: forget what these leave incomplete."""
        ends = self.attempts.finish()
        over = [key for key, group in self._open.items() if group.attempt <= ends.get(group.task, 0)]
        self.counts.ended += len(over)
        return self._forget(over)

    def expire(self, now: float) -> list[str]:
        """Forget groups that have been silent for longer than an attempt may take; returns their ids."""
        overdue = [
            key
            for key, group in self._open.items()
            if now - group.heard > self._timeouts.get(group.domain, self._timeout_s)
        ]
        self.counts.expired += len(overdue)
        return self._forget(overdue)

    def _forget(self, keys: list[str]) -> list[str]:
        for key in keys:
            self.shortfall += self._open.pop(key).accepted()
            self._finished[key] = self._version
        return keys

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
        for place in self.attempts.places():
            low[place.source] = min(low.get(place.source, place.offset), place.offset)
        return low

    def save(self, positions: Mapping[str, int]) -> Saved:
        """What a checkpoint keeps."""
        return Saved(
            finished=dict(self._finished),
            seen={**self._seen, **positions},
            shortfall=self.shortfall,
            under_way=dict(self.attempts.under_way),
            counts=msgspec.structs.replace(self.counts),
        )

    def _group(
        self,
        record: TrajectoryCompleted | TrajectoryVerified,
        task: str,
        domain: str,
        place: Place,
        now: float,
    ) -> Incomplete | None:
        key, size, index = record.group_id, record.group_size, record.index
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
            if record.attempt <= self.attempts.over(task):
                self.counts.late += 1
                return None
            group = self._open[key] = Incomplete(
                task=task, attempt=record.attempt, domain=domain, size=size, heard=now, last=place
            )
        group.heard = now
        return group

    def _note(self, group: Incomplete, place: Place, trace: str) -> None:
        group.trace = group.trace or trace
        group.first[place.source] = min(group.first.get(place.source, place.offset), place.offset)
        group.last = max(group.last, place)

    def _settle(self, key: str, group: Incomplete) -> None:
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
        done = Group(
            id=key,
            domain=group.domain,
            members=found,
            oldest=oldest,
            completed=group.last,
            trace=group.trace,
        )
        self._ready[key] = (done, group.first)
