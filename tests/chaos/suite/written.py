"""What came out against what the journal asks for. Invariant: none is missing, and none is there that nobody decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from schemas.assignments import AttemptAssigned
from schemas.grants import CreditsGranted
from schemas.journal import BatchFolded
from schemas.states import TaskState
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.scheduler.policies import Policies
from tests.chaos.suite.findings import Audit
from tests.chaos.suite.log import WORK, Log

EFFECTS = ("AttemptAssigned", "AttemptRevoked", "TaskState", "ShardReported", "CreditsGranted")


class Written:
    """The effects of one shard, by the ids of their records."""

    def __init__(self, log: Log, policies: Policies, found: Audit) -> None:
        self._log, self._policies, self._found = log, policies, found
        self._expected: dict[str, tuple[int, int]] = {}
        """Ids of the records that the fold wants, and the entry that wanted them."""
        self._states: set[str] = set()
        """Of these, the ids of task states: the broker removes one when a newer one of the same task is there."""
        self._last: set[str] = set()

    def wanted(self, entry: BatchFolded, out: Iterable[Outgoing]) -> None:
        """An entry's records; those of the newest may be on their way still."""
        self._last = set()
        for item in out:
            self._last.add(item.id)
            self._expected[item.id] = (entry.epoch, entry.seq)
            if isinstance(item.event, TaskState):
                self._states.add(item.id)

    def end(self, *, settled: bool, compacted: bool) -> None:
        """Look at the whole log. `settled`, `compacted`: as for `audit`."""
        log, found = self._log, self._found
        written = Counter(
            record.envelope.id
            for record in (*log.work(), *log.of("task-states"), *log.of("grants"))
            if record.envelope.type in EFFECTS and self._mine(record)
        )
        found.check(2, "effects decided", len(written))
        self._astray()
        excused = set() if settled else self._last
        submissions = {record.envelope.id for record in log.of("tasks")}
        missing = [
            name for name in self._expected if name not in written and name not in submissions | excused
        ]
        # As many states may be missing as the broker has removed; that the newest of each task is the truth is seen elsewhere.
        removed = {name for name in missing if name in self._states}
        if 0 < len(removed) <= log.holes("task-states"):
            found.figures["compacted_states"] = float(len(removed))
            missing = [name for name in missing if name not in removed]
        if missing and not compacted:
            where = self._expected[missing[0]]
            found.find(2, f"{len(missing)} effects never came out, the first of entry {where[0]}:{where[1]}")
        strange = [name for name in written if name not in self._expected]
        if strange:
            found.find(
                2, f"{len(strange)} effects came out that no entry of the journal wants, e.g. {strange[0]}"
            )
        found.figures["effects"] = float(len(self._expected))
        found.figures["effects_again"] = float(sum(written.values()) - len(written))

    def _astray(self) -> None:
        astray = [
            record.event.task.id
            for pool in self._log.pools
            for record in self._log.of(WORK + pool)
            if isinstance(record.event, AttemptAssigned)
            and (record.event.task.pool or self._policies.pool) != pool
        ]
        if astray:
            self._found.find(
                2, f"{len(astray)} assignments lie in the topic of another pool, e.g. of {astray[0]}"
            )

    def _mine(self, record: Record) -> bool:
        event = record.event
        shard = 0 if isinstance(event, CreditsGranted) else getattr(event, "shard", 0)
        return bool(shard == self._policies.shard)
