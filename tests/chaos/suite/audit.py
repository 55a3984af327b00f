"""The independent checker. Invariant: what it says follows from the log alone; no service is asked.

It folds the journal again and holds each entry against a second account of its own: leases and credits, verdicts and scores,
ranges and effects. A finding is one line that names the invariant of docs/design.md by number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from schemas.checkpoints import CheckpointPublished
from schemas.grants import CreditsGranted
from schemas.journal import BatchFolded
from schemas.rewards import TrajectoryVerified
from schemas.states import TERMINAL, UNDER_WAY, TaskState
from schemas.tasks import TaskCancelled, TaskSubmitted
from schemas.verdicts import usable
from services.runtime.fence import EpochFence
from services.runtime.wire import Record
from services.scheduler.cohorts import limits_of, members
from services.scheduler.effects import Assign, Effect
from services.scheduler.fold import step
from services.scheduler.handlers import Draws
from services.scheduler.invariants import invariant
from services.scheduler.journal import batch_of, ordered
from services.scheduler.outbox import outbox
from services.scheduler.policies import Policies
from services.scheduler.records import HELD
from services.scheduler.snapshot import snapshot
from services.scheduler.state import State
from tests.chaos.suite.log import Log

MOST = 40
"""Findings that are kept."""
EFFECTS = ("AttemptAssigned", "AttemptRevoked", "TaskState", "ShardReported", "CreditsGranted")


class Attempt(msgspec.Struct, kw_only=True):
    """What the log says of one attempt."""

    task: str
    number: int
    size: int
    train: bool
    scores: dict[int, float | None] = {}


class Audit(msgspec.Struct, kw_only=True):
    """What came of it."""

    findings: list[str] = []
    figures: dict[str, float] = {}
    use: list[tuple[float, int, str, int, int, bool]] = []
    """After each entry, by pool: time, shard, pool, slots leased, slots there are, whether a lease was given."""
    states: dict[str, State] = {}
    """Folded state by shard."""

    def find(self, number: int, text: str) -> None:
        """Note that an invariant does not hold."""
        if len(self.findings) < MOST:
            self.findings.append(f"invariant {number}: {text}")


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
    _observed(log, found, settled=settled)
    return found


def together(audits: list[Audit]) -> list[str]:
    """Findings over all shards: what they lease together is no more than there is, at each moment at which one gives a lease."""
    leased: dict[tuple[str, int], int] = {}
    there: dict[tuple[str, int], int] = {}
    found: list[str] = []
    for now, shard, pool, slots, capacity, gave in sorted(moment for part in audits for moment in part.use):
        leased[pool, shard], there[pool, shard] = slots, capacity
        total = sum(count for (name, _), count in leased.items() if name == pool)
        most = max(count for (name, _), count in there.items() if name == pool)
        if gave and total > most:
            found.append(
                f"invariant 4: at {now} the shards lease {total} slots of pool {pool}, it has {most}"
            )
    return found[:MOST]


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
            self._next[part.topic, part.partition] = part.next
            records += self._log.between(part.topic, part.partition, part.first, part.next)
        records = ordered(records)
        for record in records:
            self._input(record)
        state = self.state
        effects = step(state, self._policies, batch_of(entry, records, state, self._policies))
        self._effects(entry, effects)
        for line in invariant(state):
            self._found.find(1, f"after entry {entry.epoch}:{entry.seq}: {line}")
        self._slots(entry, effects)
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

    def _slots(self, entry: BatchFolded, effects: list[Effect]) -> None:
        """Free + leased = capacity, by our own count of the workers' heartbeats and of the entries' states."""
        state, now = self.state, self.state.meta.now
        where = f"after entry {entry.epoch}:{entry.seq}"
        held: dict[str, set[str]] = {}
        slots: Counter[str] = Counter()
        in_domain: Counter[str] = Counter()
        for task in state.live.values():
            if task.state not in HELD:
                continue
            held.setdefault(task.pool, set()).add(task.lease_id)
            slots[task.pool] += task.slots
            in_domain[task.domain] += task.slots
            if entry.caught_up and task.due_at <= now:
                self._found.find(
                    4, f"{where}: {task.id} holds a lease that ran out at {task.due_at}, it is {now}"
                )
        for task in state.live.values():
            timed = entry.caught_up and (task.state in UNDER_WAY or task.state == "backoff")
            if timed and not now <= task.due_at < float("inf"):
                self._found.find(11, f"{where}: {task.id} in {task.state} times out at {task.due_at}")
        capacity: Counter[str] = Counter()
        for worker in state.workers.values():
            good = now - worker.seen_at < self._policies.worker_timeout_s
            if worker.service == "sampler" and not worker.draining and good:
                capacity[worker.pool] += worker.slots
        given = Counter(effect.pool for effect in effects if isinstance(effect, Assign))
        for pool in sorted(held.keys() | capacity.keys()):
            leased = held.get(pool, set())
            if leased != set(state.occupied.get(pool, ())):
                self._found.find(4, f"{where}: pool {pool} counts other leases than its {len(leased)}")
            self._found.use.append(
                (now, self._policies.shard, pool, slots[pool], capacity[pool], given[pool] > 0)
            )
            if given[pool] and slots[pool] > capacity[pool]:
                self._found.find(
                    4, f"{where}: {slots[pool]} slots of pool {pool} are leased, it has {capacity[pool]}"
                )
        self._quotas(where, effects, in_domain)
        self._found.figures["most_leased"] = max(
            self._found.figures.get("most_leased", 0.0), float(sum(map(len, held.values())))
        )

    def _quotas(self, where: str, effects: list[Effect], in_domain: Counter[str]) -> None:
        """No lease is given beyond what a domain may hold, nor beyond what its cohort owns together."""
        state, policies = self.state, self._policies
        for domain in sorted({self._domains[e.lease_id] for e in effects if isinstance(e, Assign)}):
            limits = limits_of(state, policies, domain)
            if in_domain[domain] > limits.most:
                self._found.find(
                    4, f"{where}: {domain} holds {in_domain[domain]} slots, its most is {limits.most}"
                )
            if limits.cohort:
                names = members(policies, limits.cohort)
                nominal = sum(limits_of(state, policies, name).nominal for name in names)
                total = sum(in_domain[name] for name in names)
                if total > nominal:
                    self._found.find(
                        4, f"{where}: cohort {limits.cohort} holds {total} slots, it owns {nominal}"
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
        if self._settled and submitted != known:
            found.find(
                1, f"{len(submitted ^ known)} tasks are lost or made up, e.g. {min(submitted ^ known)}"
            )
        if state.live.keys() & state.ended.keys():
            found.find(1, "a task is live and terminal")
        written = Counter(
            record.envelope.id
            for topic in ("assignments.standard", "task-states", "grants")
            for record in log.of(topic)
            if record.envelope.type in EFFECTS and self._mine(record)
        )
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
        }

    def _mine(self, record: Record) -> bool:
        event = record.event
        shard = 0 if isinstance(event, CreditsGranted) else getattr(event, "shard", 0)
        return bool(shard == self._policies.shard)


def _observed(log: Log, found: Audit, *, settled: bool) -> None:
    """What an observer of the task states sees: each task ends once, and the newest record is the truth."""
    ends: dict[str, set[tuple[str, int]]] = {}
    newest: dict[str, TaskState] = {}
    fence = EpochFence()
    for record in fence.admitted(log.of("task-states")):  # without what a replaced scheduler wrote too late
        said = record.event
        if not isinstance(said, TaskState):
            continue
        newest[said.task_id] = said
        if said.state in TERMINAL:
            ends.setdefault(said.task_id, set()).add((said.state, said.attempt))
    found.figures["fenced_states"] = float(fence.dropped)
    conflicts = {
        name for name, many in ends.items() if len({end for end in many if end[0] != "rejected"}) > 1
    }
    if conflicts:
        found.find(1, f"{len(conflicts)} tasks ended more than once, e.g. {min(conflicts)}")
    truth: dict[str, str] = {}
    for state in found.states.values():
        truth |= {task.id: task.state for task in state.live.values()}
        truth |= {task.id: task.state for task in state.ended.values()}
    wrong = [
        name
        for name, state in truth.items()
        if settled and (name not in newest or newest[name].state != state)
    ]
    if wrong:
        shown = newest.get(wrong[0])
        found.find(
            2,
            f"{len(wrong)} tasks have a newest record that is not their state, e.g. {wrong[0]} is {truth[wrong[0]]}, "
            f"shown as {shown.state if shown else None}",
        )
