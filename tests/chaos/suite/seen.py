"""What an observer of the log has seen so far. Invariant: a replaced scheduler's late words change nothing here.

Scenarios wait for what is in here, so that every step follows on something that has happened.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from schemas.heartbeats import WorkerHeartbeat
from schemas.states import TERMINAL, TaskState
from services.runtime.fence import EpochFence
from services.runtime.wire import Record

WATCHED = ["task-states", "heartbeats"]
HELD = ("leased", "running")
LAPSED = re.compile(r"lease expired, held by worker ([^\s;]+)")
ENDED = re.compile(r"worker (\S+) (?:was started again|ended by|ran out of memory)")


class Seen:
    """Tasks, workers and schedulers as the log tells of them."""

    def __init__(self) -> None:
        self.states: dict[str, TaskState] = {}
        """Newest state of each task."""
        self.read: dict[int, dict[str, int]] = {}
        """By shard: `topic/partition` -> offset up to which it has been read, by the schedulers' heartbeats."""
        self.beats: dict[str, WorkerHeartbeat] = {}
        """Newest heartbeat by the name that it gives."""
        self.skew_s: dict[tuple[str, int], float] = {}
        """Name and process id -> seconds that its clock was off when it wrote its newest heartbeat."""
        self.lapses: Counter[str] = Counter()
        """Worker -> its leases that ran out because nobody renewed them."""
        self.deaths: Counter[str] = Counter()
        """Worker -> its leases that were taken back because its process had ended."""
        self._owners: dict[int, tuple[int, str]] = {}
        """Shard -> when its owner told of itself last, and who that was."""
        self._fence = EpochFence()

    def take(self, records: Iterable[Record]) -> None:
        """Records of the watched topics, in the order of their partitions."""
        for record in self._fence.admitted(records):
            match record.event:
                case TaskState() as state:
                    self.states[state.task_id] = state
                    for found, into in ((LAPSED, self.lapses), (ENDED, self.deaths)):
                        if named := found.search(state.reason):
                            into[named[1]] += state.state in ("backoff", "dead")
                case WorkerHeartbeat(ended="") as beat:
                    self._beat(record, beat)

    def _beat(self, record: Record, beat: WorkerHeartbeat) -> None:
        self.beats[beat.worker] = beat
        self.skew_s[beat.worker, beat.pid] = record.envelope.occurred_at - record.timestamp_ms / 1000.0
        if beat.service == "scheduler":
            name, slash, number = beat.worker.rpartition("/")
            shard = int(number) if slash else 0
            read = self.read.setdefault(shard, {})
            for place, offset in beat.offsets.items():
                read[place] = max(offset, read.get(place, 0))
            self._owners[shard] = max(
                self._owners.get(shard, (0, "")), (record.timestamp_ms, name if slash else beat.worker)
            )

    def owner(self, shard: int = 0) -> str:
        """Scheduler that was heard last of a shard; empty before the first."""
        return self._owners.get(shard, (0, ""))[1]

    def stat(self, worker: str, name: str, pid: int) -> float:
        """A figure of a process's newest heartbeat; -1 before it has sent one."""
        beat = self.beats.get(worker)
        return -1.0 if beat is None or beat.pid != pid else beat.stats.get(name, 0.0)

    def leases(self, worker: str, pid: int) -> tuple[str, ...]:
        """Leases that a process named in its newest heartbeat."""
        beat = self.beats.get(worker)
        return () if beat is None or beat.pid != pid else beat.leases

    def holding(self, domain: str = "") -> int:
        """Attempts (of a domain) that hold a slot."""
        return sum(
            state.state in HELD and (not domain or state.domain == domain) for state in self.states.values()
        )

    def ended(self) -> int:
        """Known tasks that have ended."""
        return sum(state.state in TERMINAL for state in self.states.values())

    def all_ended(self, submitted: Iterable[str]) -> bool:
        """Whether every one of these, every known task and every sub-task is in a terminal state."""
        children = {child for state in self.states.values() for child in state.children}
        return self.have_ended({*submitted, *children, *self.states})

    def have_ended(self, tasks: Iterable[str]) -> bool:
        """Whether each of these is known and in a terminal state."""
        return all(name in self.states and self.states[name].state in TERMINAL for name in tasks)
