"""The independent checker. Invariant: what it says follows from the log alone; no service is asked.

It folds the journal again and holds each entry against a second account of its own: ranges, leases and slots (slots.py),
verdicts and scores (books.py), effects (written.py), what observers see (observed.py). A finding is one line that names the
invariant of docs/design.md by number.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.journal import BatchFolded
from schemas.states import TaskState
from schemas.tasks import TaskSubmitted
from services.runtime.wire import Record
from services.scheduler.effects import Effect
from services.scheduler.fold import Batch, step
from services.scheduler.handlers import Draws
from services.scheduler.invariants import invariant
from services.scheduler.journal import batch_of, ordered
from services.scheduler.outbox import outbox
from services.scheduler.policies import Policies
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from services.scheduler.store import BOOKKEEPING
from tests.chaos.suite.books import Books
from tests.chaos.suite.findings import Audit
from tests.chaos.suite.log import Log
from tests.chaos.suite.observed import observed
from tests.chaos.suite.slots import Slots
from tests.chaos.suite.written import Written

REBUILD = 16
"""Entries from one rebuilding of the twin to the next."""
SCORED = ("succeeded", "failed", "degraded")


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
        self._twin = State()
        """Folded beside ours, and put together again from its records now and then."""
        self._next: dict[tuple[str, int], int] = {}
        self._books = Books(policies, found)
        self._slots = Slots(policies, found, self._books.domains)
        self._written = Written(log, policies, found)

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
        self._same("at the end")
        self._inputs()
        self._books.end(self.state)
        self._written.end(settled=self._settled, compacted=self._compacted)
        self._figures(entries, late)

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
        where = f"after entry {entry.epoch}:{entry.seq}"
        records = self._ranges(entry)
        for record in records:
            self._books.heard(record, self.state)
        state = self.state
        batch = batch_of(entry, records, state, self._policies)
        effects = step(state, self._policies, batch)
        self._again(entry, batch, effects)
        self._effects(entry, effects)
        self._found.check(1, "entries balanced")
        for line in invariant(state):
            self._found.find(1, f"{where}: {line}")
        self._slots.after(entry, state, effects)
        self._books.after(where, state)

    def _ranges(self, entry: BatchFolded) -> list[Record]:
        """Records that an entry takes, each of which is the next of its partition."""
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
        return ordered(records)

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
        if differing := _differing(ours, theirs):
            self._found.find(
                6, f"{where}: folded twice, {len(differing)} records differ, first {differing[0]}"
            )
        self._twin = restore(theirs)

    def _effects(self, entry: BatchFolded, effects: list[Effect]) -> None:
        self._books.gave(effects)
        out = outbox(
            effects,
            self._catalog,
            shard=self._policies.shard,
            sender=entry.epoch,
            epoch=entry.epoch,
            seq=entry.seq,
        )
        self._written.wanted(entry, out)
        for item in out:
            if isinstance(item.event, TaskState) and item.event.state in SCORED:
                self._books.scored(item.event)

    def _compare(self, stored: dict[str, bytes]) -> None:
        """The projection against our fold, byte for byte."""
        ours = snapshot(self.state)
        theirs = {name: value for name, value in stored.items() if name not in BOOKKEEPING}
        if differing := _differing(ours, theirs):
            self._found.find(5, f"{len(differing)} fields of the projection differ, first {differing[0]}")
        self._found.check(5, "fields projected", len(ours))
        self._found.figures["compared_fields"] = float(len(ours))

    def _inputs(self) -> None:
        """Every input was taken, and every task that was submitted is known, as one task."""
        found, state, log = self._found, self.state, self._log
        if self._settled:
            for (topic, partition), end in log.ends.items():
                if topic in ("tasks", "rewards", "checkpoints"):
                    taken = self._next.get((topic, partition), 0)
                    if taken != end:
                        found.find(1, f"{topic}/{partition} ends at {end}, the journal at {taken}")
        came = [
            record.event.task.id
            for record in log.of("tasks")
            if isinstance(record.event, TaskSubmitted) and self._policies.owns(record.event.task.domain)
        ]
        submitted = set(came)
        known = state.live.keys() | state.ended.keys()
        found.check(1, "tasks accounted", len(submitted & known))
        if self._settled and submitted != known:
            found.find(
                1, f"{len(submitted ^ known)} tasks are lost or made up, e.g. {min(submitted ^ known)}"
            )
        if state.live.keys() & state.ended.keys():
            found.find(1, "a task is live and terminal")
        doubles = len(came) - len(submitted)
        counters = state.meta.counters
        counted = counters.get("duplicate_task", 0) + counters.get("conflicting_task", 0)
        if self._settled and submitted == known and doubles != counted:
            found.find(
                1, f"{doubles} submissions came again, {counted} are counted as events that changed nothing"
            )
        found.figures["tasks"] = float(len(submitted))
        found.figures["doubles"] = float(doubles)

    def _figures(self, entries: int, late: int) -> None:
        state, meta = self.state, self.state.meta
        evicted, counters = meta.evicted, meta.counters
        self._found.states[str(self._policies.shard)] = state
        self._found.figures |= {
            "entries": float(entries),
            "late_entries": float(late),
            "epochs": float(meta.epoch),
            "terminal": float(len(state.ended)),
            "live": float(len(state.live)),
            "assignments": float(len(self._books.assigned)),
            "groups": float(len(self._books.complete)),
            "losses": float(sum(task.losses for task in state.ended.values())),
            "drains": float(evicted.get("drained", 0)),
            "lapsed": float(evicted.get("lease_expired", 0)),
            "ignored": float(sum(counters.values())),
            "pools": float(len(self._log.pools)),
        }


def _differing(ours: dict[str, bytes], theirs: dict[str, bytes]) -> list[str]:
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
