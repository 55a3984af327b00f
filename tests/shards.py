"""The folds of several shards over one log in memory: journals, recovery and messages as in production, time set by hand."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.envelope import Envelope
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.journal import BatchFolded, Range
from schemas.states import TaskState
from schemas.tasks import Task, TaskSubmitted
from services.runtime.wire import Record
from services.scheduler.fold import step
from services.scheduler.invariants import invariant
from services.scheduler.journal import batch_of
from services.scheduler.outbox import outbox
from services.scheduler.settings import ORDER
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.verdicts import verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from schemas.base import Event
    from services.scheduler.effects import Effect
    from services.scheduler.policies import Policies

NO_CATALOG: Any = None


class Log:
    """Partitions by name, each a list of records; several for tasks, so that shards may read them in different orders."""

    def __init__(self, task_partitions: int = 1) -> None:
        self.parts: dict[tuple[str, int], list[Record]] = {
            (topic, partition): []
            for topic in ORDER
            for partition in range(task_partitions if topic == "tasks" else 1)
        }

    def write(self, topic: str, event: Event, now: float, *, partition: int = 0, name: str = "") -> None:
        part = self.parts[topic, partition]
        envelope = Envelope(
            id=name, type=event.type_name(), key="", occurred_at=now, producer="", data=msgspec.Raw(b"")
        )
        part.append(Record(topic, partition, len(part), int(now * 1000), "", envelope, event))


class Shard:
    """One shard's incarnations: its state, its journal, and what its successor finds."""

    def __init__(self, policies: Policies, log: Log) -> None:
        self.policies, self.log = policies, log
        self.state = State()
        self.journal: list[BatchFolded] = []
        self.stored: tuple[int, dict[str, bytes]] = (0, {})
        """Journal entries that the stored snapshot has taken in, and the snapshot."""
        self.last: list[Effect] = []
        self.repeats = (0, 0)
        """Mark of the entry whose effects a successor repeats."""
        self.claim(0.0)

    def claim(self, now: float) -> None:
        meta = self.state.meta
        self.take(self.entry(meta.epoch + 1, (), max(now, meta.now), caught_up=False))

    def entry(self, epoch: int, ranges: tuple[Range, ...], now: float, *, caught_up: bool) -> BatchFolded:
        return BatchFolded(
            run="run",
            seq=self.state.meta.seq + 1,
            now=now,
            ranges=ranges,
            epoch=epoch,
            shard=self.policies.shard,
            shards=self.policies.shards,
            caught_up=caught_up,
        )

    def take(self, entry: BatchFolded) -> list[Effect]:
        self.journal.append(entry)
        self.last = self.fold(entry)
        return self.last

    def fold(self, entry: BatchFolded) -> list[Effect]:
        records = [
            record
            for part in entry.ranges
            for record in self.log.parts[part.topic, part.partition][part.first : part.next]
        ]
        return step(self.state, self.policies, batch_of(entry, records, self.state, self.policies))

    def turn(self, now: float, portion: int = 10**9, *, rng: random.Random | None = None) -> list[Effect]:
        """Take what the log holds, at most `portion` of each partition (some of that, with `rng`)."""
        ranges = []
        for (topic, partition), records in self.log.parts.items():
            first = self.state.meta.offsets.get(f"{topic}/{partition}", 0)
            there = min(len(records) - first, portion)
            count = there if rng is None else rng.randint(0, there)
            if count:
                ranges.append(Range(topic=topic, partition=partition, first=first, next=first + count))
        ranges.sort(key=lambda part: (ORDER.index(part.topic), part.partition))
        now = max(now, self.state.meta.now)
        return self.take(self.entry(self.state.meta.epoch, tuple(ranges), now, caught_up=True))

    def store(self) -> None:
        self.stored = (len(self.journal), snapshot(self.state))

    def die(self, now: float) -> list[Effect]:
        """A successor starts from the stored snapshot and the journal; the last entry's effects, to be done again."""
        before = snapshot(self.state)
        number, fields = self.stored
        self.state = restore(fields) if fields else State()
        again: list[Effect] = self.last
        for entry in self.journal[number:]:
            again = self.fold(entry)
        assert snapshot(self.state) == before, "recovery gives the very state"
        seq = self.state.meta.seq
        epoch = self.state.meta.epoch
        self.claim(now)
        self.repeats = (epoch, seq)
        return again


class Fleet:
    """All shards, one sampler pool, and verifiers that pass everything at once."""

    def __init__(
        self, policies: Policies, shards: int, *, slots: int, seed: int = 1, task_partitions: int = 1
    ) -> None:
        self.log = Log(task_partitions)
        self.task_partitions = task_partitions
        self.policies = msgspec.structs.replace(policies, shards=shards)
        self.shards = [
            Shard(msgspec.structs.replace(self.policies, shard=number), self.log) for number in range(shards)
        ]
        self.slots, self.tokens = slots, 0
        self.rng = random.Random(seed)
        self.now = 1000.0
        self.costs: dict[str, float] = {}
        self.passes: dict[str, float] = {}
        """Domain -> chance that a sample passes; 1 unless given."""
        self.open: dict[str, AttemptAssigned] = {}
        self.done: list[tuple[float, str]] = []
        self.seen: set[str] = set()
        self.sent: Counter[str] = Counter()
        self.taught: Counter[str] = Counter()
        self.order: list[AttemptAssigned] = []
        self.states: dict[str, list[TaskState]] = {}
        self.beat_at = float("-inf")
        self.numbers: Counter[str] = Counter()

    def owner(self, domain: str) -> Shard:
        return next(shard for shard in self.shards if shard.policies.owns(domain))

    def submit(self, name: str, domain: str, *, partition: int | None = None, **fields: Any) -> None:
        outer = {key: fields.pop(key) for key in ("idempotency_key", "priority") if key in fields}
        task = Task(id=name, domain=domain, **({"prompt": "2 + 2"} | fields))
        where = self.rng.randrange(self.task_partitions) if partition is None else partition
        self.log.write("tasks", TaskSubmitted(task=task, **outer), self.now, partition=where)

    def top_up(self, domain: str, ready: int, **fields: Any) -> None:
        """Keep so many tasks of a domain waiting, those on their way to its shard included."""
        waiting = self.numbers[domain] - self.sent[domain]
        for _ in range(ready - waiting):
            self.numbers[domain] += 1
            self.submit(f"{domain}-{self.numbers[domain]}", domain, **fields)

    def beat(self, *released: str) -> None:
        self.beat_at = self.now
        event = WorkerHeartbeat(
            worker="w",
            service="sampler",
            pool="standard",
            slots=self.slots,
            tokens=self.tokens,
            leases=tuple(self.open),
            released=tuple(Released(lease_id=lease, reason="finished") for lease in released),
        )
        self.log.write("heartbeats", event, self.now)

    def out(self, shard: Shard, effects: Iterable[Effect], mark: tuple[int, int] | None = None) -> None:
        """What a shard's effects become in the world."""
        meta = shard.state.meta
        epoch, seq = mark or (meta.epoch, meta.seq)
        for record in outbox(
            effects, NO_CATALOG, shard=shard.policies.shard, sender=meta.epoch, epoch=epoch, seq=seq
        ):
            event: Any = record.event
            if isinstance(event, AttemptAssigned):
                self.assign(event)
            elif isinstance(event, AttemptRevoked):
                self.open.pop(event.lease_id, None)
            elif isinstance(event, TaskState):
                self.states.setdefault(event.task_id, []).append(event)
            else:
                self.log.write(record.topic, event, self.now, name=record.id)

    def assign(self, event: AttemptAssigned) -> None:
        if event.lease_id in self.seen:
            return
        self.seen.add(event.lease_id)
        self.open[event.lease_id] = event
        self.order.append(event)
        self.sent[event.task.domain] += 1
        seconds = self.costs.get(event.task.domain, 1.0) * self.rng.uniform(0.8, 1.2)
        heapq.heappush(self.done, (self.now + seconds, event.lease_id))

    def finish(self) -> None:
        """End what is done by now."""
        ended = []
        while self.done and self.done[0][0] <= self.now:
            _, lease = heapq.heappop(self.done)
            event = self.open.pop(lease, None)
            if event is None:
                continue
            ended.append(lease)
            chance = self.passes.get(event.task.domain, 1.0)
            scores = [float(self.rng.random() < chance) for _ in range(event.group_size)]
            self.taught[event.task.domain] += max(scores) > min(scores)
            for index, score in enumerate(scores):
                self.log.write("rewards", verified(event, index, score), self.now)
        if ended or self.now - self.beat_at > 1.0:
            self.beat(*ended)

    def turn(self, seconds: float) -> None:
        """Time passes; every shard takes its turn."""
        self.now += seconds
        self.finish()
        for shard in self.shards:
            self.out(shard, shard.turn(self.now))

    def chance(self, *, deaths: bool = True) -> None:
        """One shard, a part of what there is to read, and now and then an end without warning or a stored snapshot."""
        rng = self.rng
        self.now += rng.choice((0.0, 0.01, 0.06, 0.3))
        self.finish()
        shard = rng.choice(self.shards)
        self.out(shard, shard.turn(self.now, rng=rng))
        event = rng.random()
        if event < 0.05:
            shard.store()
        elif event < 0.12 and deaths:
            again = shard.die(self.now)
            self.out(shard, again, shard.repeats)  # what may have been out already comes twice

    def quiet(self, done: Callable[[], bool], most: int = 4000) -> None:
        """Turns until it is done; fails if it never is."""
        for _ in range(most):
            if done():
                return
            self.turn(0.1)
        raise AssertionError(f"not done after {most} turns")

    def sound(self) -> None:
        for shard in self.shards:
            assert invariant(shard.state) == []

    def held(self) -> tuple[int, int]:
        """Slots and tokens that leases of all shards hold."""
        leases = [held for shard in self.shards for held in shard.state.occupied.values()]
        return sum(held.slots for held in leases), sum(held.tokens for held in leases)

    def tickets(self) -> int:
        """Training groups accepted or under way, over all shards."""
        return sum(shard.state.meta.accepted + shard.state.training for shard in self.shards)

    def live(self) -> int:
        return sum(len(shard.state.live) + len(shard.state.pending) for shard in self.shards)
