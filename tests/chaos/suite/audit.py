"""The independent checker. Invariant: what it says follows from the log alone; no service is asked.

It folds the journal again and holds each entry against a second account of its own: leases and credits, verdicts and scores,
ranges and effects. A finding is one line that names the invariant of docs/design.md by number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from schemas.assignments import AttemptAssigned
from schemas.checkpoints import CheckpointPublished
from schemas.grants import CreditsGranted
from schemas.journal import BatchFolded
from schemas.rewards import TrajectoryVerified
from schemas.states import TaskState
from schemas.tasks import TaskCancelled, TaskSubmitted
from schemas.verdicts import usable
from services.runtime.wire import Record
from services.scheduler.effects import Assign, Effect
from services.scheduler.fold import Batch, step
from services.scheduler.handlers import Draws
from services.scheduler.invariants import invariant
from services.scheduler.journal import batch_of, ordered
from services.scheduler.outbox import outbox
from services.scheduler.policies import Policies
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.chaos.suite.findings import Audit
from tests.chaos.suite.log import WORK, Log
from tests.chaos.suite.observed import observed
from tests.chaos.suite.slots import Slots

REBUILD = 16
"""Entries from one rebuilding of the twin to the next."""
EFFECTS = ("AttemptAssigned", "AttemptRevoked", "TaskState", "ShardReported", "CreditsGranted")


class Attempt(msgspec.Struct, kw_only=True):
    """What the log says of one attempt."""

    task: str
    number: int
    size: int
    train: bool
    scores: dict[int, float | None] = {}


def audit(
    log: Log,
    policies: Policies,
    catalog: Draws,
    *,
    stored: dict[str, bytes] | None = None,
    settled: bool = True,
    compacted: bool = False,
) -> Audit:
    """Hold the log of one shard against itself.

    `stored`: the projection's fields, to be compared byte for byte. `settled`: everything has ended and been written, so the
    log is complete: each input was taken and each effect is out. `compacted`: the broker may have removed older task states.
    """
    found = Audit()
    Account(log, policies, catalog, found, settled=settled, compacted=compacted).run(stored)
    observed(log, found, settled=settled)
    return found


class Account:
    """The journal, entry by entry, with a second set of books."""

    def __init__(
        self, log: Log, policies: Policies, catalog: Draws, found: Audit, *, settled: bool, compacted: bool
    ) -> None:
        self._log, self._policies, self._catalog, self._found = log, policies, catalog, found
        self._settled, self._compacted = settled, compacted
        self.state = State()
        self._next: dict[tuple[str, int], int] = {}
        self._open: dict[str, Attempt] = {}
        """By lease: attempts under way, as of the last entry."""
        self._assigned: dict[str, Attempt] = {}
        """By lease: every attempt that was ever given out."""
        self._domains: dict[str, str] = {}
        """By lease."""
        self._slots = Slots(policies, found, self._domains)
        self._gone: set[str] = set()
        """Leases that have ended."""
        self._twin = State()
        """Folded beside ours, and put together again from its records now and then."""
        self._complete: dict[tuple[str, int], float] = {}
        """Mean score of the attempts whose verdicts are all in, by task and number."""
        self._accepted = 0
        self._expected: dict[str, tuple[int, int]] = {}
        """Ids of the records that the fold wants, and the entry that wanted them."""
        self._states: set[str] = set()
        """Of these, the ids of task states: the broker removes one when a newer one of the same task is there."""
        self._last: set[str] = set()

    def run(self, stored: dict[str, bytes] | None) -> None:
        """All entries that count."""
        compared = stored is None
        mark = b"" if stored is None else stored.get("mark", b"")
        entries = late = 0
        for entry in self._entries():
            if entry is None:
                late += 1
                continue
            entries += 1
            self._take(entry)
            if stored is not None and mark == f"{entry.epoch}:{entry.seq}".encode():
                compared = True
                self._compare(stored)
        if not compared:
            self._found.find(5, f"the projection stands at {mark!r}, which is no entry of the journal")
        self._end(entries, late)

    def _entries(self) -> Iterator[BatchFolded | None]:
        """The entries in order; None for those that a replaced scheduler wrote too late."""
        epoch, seq = 0, 0
        for record in self._log.parts.get(("journal", self._policies.shard), []):
            entry = record.event
            if not isinstance(entry, BatchFolded):
                continue
            if entry.epoch < epoch or (entry.epoch == epoch and entry.seq <= seq):
                yield None
                continue
            if entry.seq != seq + 1:
                self._found.find(5, f"journal entry {entry.epoch}:{entry.seq} follows on {epoch}:{seq}")
            self._found.check(5, "entries in order")
            epoch, seq = entry.epoch, entry.seq
            yield entry

    def _take(self, entry: BatchFolded) -> None:
        records: list[Record] = []
        for part in entry.ranges:
            expected = self._next.get((part.topic, part.partition), 0)
            if part.first != expected or part.next <= part.first:
                self._found.find(
                    3,
                    f"entry {entry.epoch}:{entry.seq} takes {part.topic}/{part.partition} "
                    f"[{part.first}, {part.next}), {expected} is next",
                )
            self._found.check(3, "ranges taken")
            self._next[part.topic, part.partition] = part.next
            records += self._log.between(part.topic, part.partition, part.first, part.next)
        records = ordered(records)
        for record in records:
            self._input(record)
        state = self.state
        batch = batch_of(entry, records, state, self._policies)
        effects = step(state, self._policies, batch)
        self._again(entry, batch, effects)
        self._effects(entry, effects)
        self._found.check(1, "entries balanced")
        for line in invariant(state):
            self._found.find(1, f"after entry {entry.epoch}:{entry.seq}: {line}")
        self._slots.after(entry, state, effects)
        if self._accepted != state.meta.accepted:
            self._found.find(
                2,
                f"after entry {entry.epoch}:{entry.seq}: {state.meta.accepted} groups are counted, "
                f"{self._accepted} were completed while their lease was good",
            )
            self._accepted = state.meta.accepted
        self._open = {
            lease: self._assigned[lease]
            for lease, task in state.leases.items()
            if self._known(entry, lease, task)
        }
        self._attempts(entry)

    def _again(self, entry: BatchFolded, batch: Batch, effects: list[Effect]) -> None:
        """The same batch on a twin: the same effects, and now and then the same bytes, from which the twin goes on."""
        again = step(self._twin, self._policies, batch)
        self._found.check(6, "entries folded again")
        if again != effects:
            self._found.find(6, f"entry {entry.epoch}:{entry.seq} folded again gives other effects")
        if entry.seq % REBUILD == 0:
            self._same(f"after entry {entry.epoch}:{entry.seq}")

    def _same(self, where: str) -> None:
        ours, theirs = snapshot(self.state), snapshot(self._twin)
        if ours != theirs:
            differing = sorted(
                name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
            )
            self._found.find(
                6, f"{where}: folded twice, {len(differing)} records differ, first {differing[0]}"
            )
        self._twin = restore(theirs)

    def _attempts(self, entry: BatchFolded) -> None:
        """A lease that has ended stays so: each attempt ends once."""
        ended = self._assigned.keys() - self._open.keys() - self.state.leases.keys()
        if back := self._gone & self.state.leases.keys():
            self._found.find(
                1, f"after entry {entry.epoch}:{entry.seq}: lease {min(back)} had ended and is back"
            )
        self._found.check(1, "attempts ended", len(ended - self._gone))
        self._gone |= ended

    def _known(self, entry: BatchFolded, lease: str, task: str) -> bool:
        known = lease in self._assigned
        if not known:
            self._found.find(2, f"after entry {entry.epoch}:{entry.seq}: {task} holds a lease nobody gave it")
        return known

    def _input(self, record: Record) -> None:
        match record.event:
            case TrajectoryVerified() as verdict:
                attempt = self._open.get(verdict.lease_id)
                if (
                    attempt is None
                    or (attempt.task, attempt.number) != (verdict.task_id, verdict.attempt)
                    or not 0 <= verdict.index < attempt.size
                    or verdict.index in attempt.scores
                ):
                    return
                outcome = verdict.verdict
                attempt.scores[verdict.index] = None if outcome.outcome == "infra" else outcome.score
                if len(attempt.scores) == attempt.size:
                    del self._open[verdict.lease_id]
                    self._completed(attempt)
            case TaskCancelled() as cancelled:
                for lease, attempt in list(self._open.items()):
                    entry = self.state.live[attempt.task]
                    if attempt.task == cancelled.task_id or (
                        cancelled.batch and entry.batch == cancelled.batch
                    ):
                        del self._open[lease]
            case CheckpointPublished() as published if published.run == self._policies.run:
                if published.policy.version >= self.state.meta.version:
                    least = published.policy.version * self._policies.groups_per_step
                    self._accepted = max(self._accepted, least)

    def _completed(self, attempt: Attempt) -> None:
        valid = [score for score in attempt.scores.values() if score is not None]
        if usable(len(valid), attempt.size):
            self._accepted += attempt.train
            self._complete[attempt.task, attempt.number] = sum(valid) / len(valid)

    def _effects(self, entry: BatchFolded, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Assign):
                event = effect.event
                if event.lease_id in self._assigned:
                    self._found.find(2, f"lease {event.lease_id} of {event.task.id} is given out twice")
                last = [a.number for a in self._open.values() if a.task == event.task.id]
                if last and last[0] >= event.attempt:
                    self._found.find(2, f"{event.task.id} goes from attempt {last[0]} to {event.attempt}")
                self._domains[event.lease_id] = event.task.domain
                self._assigned[event.lease_id] = Attempt(
                    task=event.task.id,
                    number=event.attempt,
                    size=event.group_size,
                    train=event.task.purpose == "train",
                )
        out = outbox(
            effects,
            self._catalog,
            shard=self._policies.shard,
            sender=entry.epoch,
            epoch=entry.epoch,
            seq=entry.seq,
        )
        self._last = {item.id for item in out}
        for item in out:
            self._expected[item.id] = (entry.epoch, entry.seq)
            if isinstance(item.event, TaskState):
                self._states.add(item.id)
            if isinstance(item.event, TaskState) and item.event.state in ("succeeded", "failed", "degraded"):
                self._score(item.event)

    def _score(self, said: TaskState) -> None:
        """A result is that of one attempt: the last one, with the verdicts that came in time."""
        self._found.check(2, "results scored")
        scored = self._complete.get((said.task_id, said.attempt))
        if scored is None:
            partial = [
                a for a in self._assigned.values() if (a.task, a.number) == (said.task_id, said.attempt)
            ]
            valid = [s for a in partial for s in a.scores.values() if s is not None]
            scored = sum(valid) / len(valid) if valid else None
        if said.score is None or scored is None or abs(said.score - scored) > 1e-12:
            self._found.find(
                2,
                f"{said.task_id} ended {said.state} with score {said.score} at attempt {said.attempt}, "
                f"its verdicts say {scored}",
            )

    def _compare(self, stored: dict[str, bytes]) -> None:
        """The projection against our fold, byte for byte."""
        ours = snapshot(self.state)
        theirs = {
            name: value
            for name, value in stored.items()
            if name not in {"epoch", "mark", "journal", "shards"}
        }
        differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        if differing:
            self._found.find(5, f"{len(differing)} fields of the projection differ, first {differing[0]}")
        self._found.check(5, "fields projected", len(ours))
        self._found.figures["compared_fields"] = float(len(ours))

    def _end(self, entries: int, late: int) -> None:
        found, state, log = self._found, self.state, self._log
        if self._settled:
            for (topic, partition), end in log.ends.items():
                if topic in ("tasks", "rewards", "checkpoints"):
                    taken = self._next.get((topic, partition), 0)
                    if taken != end:
                        found.find(1, f"{topic}/{partition} ends at {end}, the journal at {taken}")
        submitted = {
            record.event.task.id
            for record in log.of("tasks")
            if isinstance(record.event, TaskSubmitted) and self._policies.owns(record.event.task.domain)
        }
        known = state.live.keys() | state.ended.keys()
        found.check(1, "tasks accounted", len(submitted & known))
        self._same("at the end")
        if self._settled and submitted != known:
            found.find(
                1, f"{len(submitted ^ known)} tasks are lost or made up, e.g. {min(submitted ^ known)}"
            )
        if state.live.keys() & state.ended.keys():
            found.find(1, "a task is live and terminal")
        written = Counter(
            record.envelope.id
            for record in (*log.work(), *log.of("task-states"), *log.of("grants"))
            if record.envelope.type in EFFECTS and self._mine(record)
        )
        found.check(2, "effects decided", len(written))
        astray = [
            record.event.task.id
            for pool in log.pools
            for record in log.of(WORK + pool)
            if isinstance(record.event, AttemptAssigned)
            and (record.event.task.pool or self._policies.pool) != pool
        ]
        if astray:
            found.find(2, f"{len(astray)} assignments lie in the topic of another pool, e.g. of {astray[0]}")
        excused = set() if self._settled else self._last
        submissions = {record.envelope.id for record in log.of("tasks")}
        missing = [
            name for name in self._expected if name not in written and name not in submissions | excused
        ]
        # As many states may be missing as the broker has removed; that the newest of each task is the truth is seen elsewhere.
        removed = {name for name in missing if name in self._states}
        if 0 < len(removed) <= log.holes("task-states"):
            found.figures["compacted_states"] = float(len(removed))
            missing = [name for name in missing if name not in removed]
        if missing and not self._compacted:
            where = self._expected[missing[0]]
            found.find(2, f"{len(missing)} effects never came out, the first of entry {where[0]}:{where[1]}")
        strange = [name for name in written if name not in self._expected]
        if strange:
            found.find(
                2, f"{len(strange)} effects came out that no entry of the journal wants, e.g. {strange[0]}"
            )
        found.states[str(self._policies.shard)] = state
        found.figures |= {
            "entries": float(entries),
            "late_entries": float(late),
            "epochs": float(state.meta.epoch),
            "tasks": float(len(submitted)),
            "terminal": float(len(state.ended)),
            "live": float(len(state.live)),
            "assignments": float(len(self._assigned)),
            "groups": float(len(self._complete)),
            "effects": float(len(self._expected)),
            "effects_again": float(sum(written.values()) - len(written)),
            "losses": float(sum(task.losses for task in state.ended.values())),
            "drains": float(
                sum(max(0, task.attempt - 1 - task.failures - task.losses) for task in state.ended.values())
            ),
            "ignored": float(sum(state.meta.counters.values())),
            "pools": float(len(log.pools)),
        }

    def _mine(self, record: Record) -> bool:
        event = record.event
        shard = 0 if isinstance(event, CreditsGranted) else getattr(event, "shard", 0)
        return bool(shard == self._policies.shard)
