"""Several scheduler processes on one log: who is replaced has no effect, slots are never given twice, nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from schemas.assignments import AttemptAssigned
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.run import Domains, RunConfig, Sampler, Training
from schemas.run import Scheduler as SchedulerSection
from schemas.states import TERMINAL, TaskState
from schemas.tasks import Task, TaskSubmitted
from services.runtime import topics
from services.runtime.fence import EpochFence
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from tests.verdicts import verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from services.runtime.wire import Record

pytestmark = pytest.mark.integration

CARD = """
name = "d{number}"
layer = "foundation"
summary = "Say the word."
dataset = "words.jsonl"
[verifier]
family = "format"
[timeouts]
lease_s = {lease_s}
verify_s = 20.0
[retry]
infra = 20
backoff_s = 0.05
backoff_max_s = 0.2
"""
DOMAINS = 6
SLOTS = 6


class Fleet:
    """Scheduler processes of one installation."""

    def __init__(self, folder: Path, kafka: str, redis_url: str, prefix: str) -> None:
        self.folder, self.kafka, self.prefix = folder, kafka, prefix
        self.environment = os.environ | {
            "TEMPER_KAFKA": kafka,
            "TEMPER_REDIS": redis_url,
            "TEMPER_PREFIX": prefix,
            "TEMPER_CONFIG": str(folder / "config.json"),
            "TEMPER_RUN_DIR": str(folder),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def configure(self, *, lease_s: float = 5.0, **fields: Any) -> None:
        cards = self.folder / "cards"
        cards.mkdir(exist_ok=True)
        (cards / "words.jsonl").write_text(json.dumps({"prompt": "say", "spec": {}, "gold": "x"}))
        for number in range(DOMAINS):
            (cards / f"d{number}.toml").write_text(CARD.format(number=number, lease_s=lease_s))
        config = RunConfig(
            name="r",
            domains=Domains(paths=(str(cards),)),
            training=Training(group_size=2, groups_per_step=500),
            scheduler=SchedulerSection(**({"tick_s": 0.05, "ownership_s": 1.5} | fields)),
            sampler=Sampler(slots=SLOTS),
        )
        (self.folder / "config.json").write_bytes(msgspec.json.encode(config))
        asyncio.run(topics.create(self.kafka, self.prefix, shards=config.scheduler.shards))

    def start(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "services.scheduler"],
                env=self.environment | {"TEMPER_WORKER": name},
                stdout=log,
                stderr=log,
            )

    def send(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def until(self, name: str, words: str, seconds: float = 30.0) -> None:
        ends = time.monotonic() + seconds
        while words not in self.log(name):
            assert time.monotonic() < ends, f"{name} never said {words!r}:\n{self.log(name)}"
            time.sleep(0.02)

    def ask(self, *words: str) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "services.scheduler", *words, "--json"],
            env=self.environment,
            capture_output=True,
            timeout=90,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(20)


@pytest.fixture
def fleet(kafka: str, redis_url: str, prefix: str, tmp_path: Path) -> Iterator[Fleet]:
    running = Fleet(tmp_path, kafka, redis_url, prefix)
    try:
        yield running
    finally:
        running.end()


class World:
    """One sampler with SLOTS slots and a verifier; each lease is held for `hold_s`."""

    def __init__(self, fleet: Fleet, hold_s: float = 0.05) -> None:
        self.producer = Producer(fleet.kafka, fleet.prefix, "world")
        self.reader = LogReader(
            fleet.kafka, fleet.prefix, ["assignments.standard", "task-states"], wait_ms=20
        )
        self.hold_s = hold_s
        self.assigned: dict[str, AttemptAssigned] = {}
        self.fence = EpochFence()
        self.copies: Counter[str] = Counter()
        self.epochs: list[tuple[float, int]] = []
        self.states: dict[str, TaskState] = {}
        self.ends: Counter[str] = Counter()
        self.open: dict[str, tuple[float, AttemptAssigned]] = {}
        self.most = 0
        self.work = True
        self.beat_at = 0.0
        self.submitted = 0

    async def __aenter__(self) -> Self:
        await self.producer.start()
        await self.reader.start()
        await self.beat()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reader.stop()
        await self.producer.stop()

    async def beat(self, *released: str) -> None:
        self.beat_at = time.monotonic()
        event = WorkerHeartbeat(
            worker="w",
            service="sampler",
            pool="standard",
            slots=SLOTS,
            leases=tuple(self.open),
            released=tuple(Released(lease_id=lease, reason="finished") for lease in released),
        )
        await self.producer.emit(Outgoing("heartbeats", event, "w"))

    async def submit(self, count: int, domains: int = DOMAINS) -> None:
        names = [(f"t{self.submitted + n}", f"d{n % domains}") for n in range(count)]
        self.submitted += count
        await self.producer.emit(
            *(
                Outgoing("tasks", TaskSubmitted(task=Task(id=name, domain=domain, prompt="say")), domain)
                for name, domain in names
            )
        )

    async def finish(self) -> None:
        now = time.monotonic()
        done = [lease for lease, (at, _) in self.open.items() if now - at >= self.hold_s]
        events = []
        for lease in done:
            _, assigned = self.open.pop(lease)
            events += [verified(assigned, index, 1.0) for index in range(assigned.group_size)]
        if done:
            await self.producer.emit(*(Outgoing("rewards", event, event.group_id) for event in events))
        if done or now - self.beat_at > 0.3:
            await self.beat(*done)

    def _new(self, records: list[Record]) -> Iterator[Record]:
        """All leases as they come; of the states what an observer takes, and no other."""
        for record in records:
            yield from self.fence.admitted([record]) if isinstance(record.event, TaskState) else [record]

    async def until(self, done: Callable[[], bool], seconds: float = 40.0) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                for record in self._new(await self.reader.poll(0.02)):
                    event = record.event
                    if isinstance(event, TaskState):
                        first = self.states.get(event.task_id)
                        if event.state in TERMINAL and (first is None or first.state not in TERMINAL):
                            self.ends[event.task_id] += 1
                        self.states[event.task_id] = event
                    elif isinstance(event, AttemptAssigned):
                        self.copies[event.lease_id] += 1
                        self.epochs.append((record.timestamp_ms / 1000.0, event.epoch))
                        if event.lease_id not in self.assigned:
                            self.assigned[event.lease_id] = event
                            self.open[event.lease_id] = (time.monotonic(), event)
                            self.most = max(self.most, len(self.open))
                if self.work:
                    await self.finish()
                elif time.monotonic() - self.beat_at > 0.3:
                    await self.beat()

    def ended(self, count: int) -> Callable[[], bool]:
        return lambda: sum(state.state in TERMINAL for state in self.states.values()) >= count


def play(fleet: Fleet, scene: Callable[[World], Any], **fields: Any) -> World:
    async def scenario() -> World:
        async with World(fleet, **fields) as world:
            await scene(world)
            return world

    return asyncio.run(scenario())


def sound(fleet: Fleet, world: World) -> dict[str, Any]:
    """Nothing lost, nothing twice, and the log gives the stored state."""
    assert set(world.ends.values()) <= {1}
    status, report = fleet.ask("replay")
    assert [*report["differences"], *report["violations"]] == [], report
    assert status == 0
    assert report["submitted"] == report["terminal"] + report["live"] == world.submitted
    found: dict[str, Any] = report
    return found


def test_a_scheduler_that_was_paused_past_its_ownership_has_no_effect(fleet: Fleet) -> None:
    fleet.configure()
    fleet.start("a")
    fleet.until("a", "shard 0 recovered")
    fleet.start("b")
    fleet.until("b", "standing by")

    async def scene(world: World) -> None:
        await world.submit(40)
        await world.until(world.ended(10))
        fleet.send("a", signal.SIGSTOP)
        await world.submit(40)
        await world.until(lambda: "shard 0 recovered" in fleet.log("b"))
        await world.until(world.ended(60))
        resumed = time.time()
        fleet.send("a", signal.SIGCONT)
        await world.submit(40)
        await world.until(world.ended(120))
        await world.until(
            lambda: "another scheduler has taken over" in fleet.log("a") or time.time() > resumed + 3
        )
        newest = max(epoch for _, epoch in world.epochs)
        late = [epoch for at, epoch in world.epochs if at > resumed + 0.5]
        assert set(late) <= {newest}
        # A copy of a lease can only be of the entry that the successor repeats.
        assert max(world.copies.values()) <= 2

    world = play(fleet, scene)
    assert all(process.poll() is None for process in fleet.processes.values()), "who is replaced stands by"
    fleet.send("a", signal.SIGTERM)
    assert fleet.processes["a"].wait(20) == 0
    fleet.send("b", signal.SIGTERM)
    assert fleet.processes["b"].wait(20) == 0
    assert sound(fleet, world)["terminal"] == 120


def test_a_scheduler_that_is_told_to_stop_hands_over_at_once(fleet: Fleet) -> None:
    fleet.configure(ownership_s=60.0)
    fleet.start("a")
    fleet.until("a", "shard 0 recovered")
    fleet.start("b")
    fleet.until("b", "standing by")

    async def scene(world: World) -> None:
        await world.submit(30)
        await world.until(world.ended(10))
        fleet.send("a", signal.SIGTERM)
        began = time.monotonic()
        await world.submit(30)
        await world.until(lambda: "shard 0 recovered" in fleet.log("b"), 20.0)
        assert time.monotonic() - began < 10.0
        await world.until(world.ended(60))
        assert fleet.processes["a"].wait(20) == 0
        # A new process of the same name as one that was killed takes its place without waiting for the session to end.
        fleet.send("b", signal.SIGKILL)
        fleet.processes["b"].wait(20)
        fleet.start("b")
        await world.submit(10)
        await world.until(world.ended(70), 20.0)

    world = play(fleet, scene)
    fleet.send("b", signal.SIGTERM)
    assert fleet.processes["b"].wait(20) == 0
    assert sound(fleet, world)["terminal"] == 70


def test_shards_share_the_slots_and_move_when_a_process_is_killed(fleet: Fleet) -> None:
    fleet.configure(shards=3)
    fleet.start("a")
    fleet.start("b")

    async def scene(world: World) -> None:
        await world.producer.send_raw("tasks", b"\xff not an event", b"k", [])
        await world.submit(120)
        await world.until(world.ended(40))
        fleet.send("a", signal.SIGKILL)
        await world.submit(60)
        await world.until(world.ended(150), 60.0)
        fleet.start("c")
        await world.until(world.ended(180), 60.0)
        await world.until(lambda: not world.open)
        # One shard's domains alone get all slots.
        world.hold_s, world.most = 0.6, 0
        await world.submit(30, domains=1)
        await world.until(world.ended(210), 60.0)
        assert world.most == SLOTS, "idle shards' slots go to the busy one"

    world = play(fleet, scene)
    assert world.most <= SLOTS
    status, found = fleet.ask("ps")
    assert status == 0, found
    assert len(found["shards"]) == 3
    assert found["domains"]["d1"]["states"] == {"succeeded": 30}
    status, found = fleet.ask("explain", "t5")
    assert (status, found["state"]) == (0, "succeeded")
    for name in ("b", "c"):
        fleet.send(name, signal.SIGTERM)
        assert fleet.processes[name].wait(30) == 0
    assert sound(fleet, world)["shards"] == 3

    async def dead() -> int:
        reader = LogReader(fleet.kafka, fleet.prefix, ["tasks.dlq"])
        await reader.start()
        try:
            return sum((await reader.end_offsets()).values())
        finally:
            await reader.stop()

    assert asyncio.run(dead()) == 1


def test_another_division_is_refused_in_one_line(fleet: Fleet) -> None:
    fleet.configure()
    fleet.start("a")
    fleet.until("a", "shard 0 recovered")
    fleet.send("a", signal.SIGTERM)
    assert fleet.processes["a"].wait(20) == 0
    config = msgspec.json.decode((fleet.folder / "config.json").read_bytes(), type=RunConfig)
    two = msgspec.structs.replace(config, scheduler=msgspec.structs.replace(config.scheduler, shards=2))
    (fleet.folder / "config.json").write_bytes(msgspec.json.encode(two))
    fleet.start("b")
    assert fleet.processes["b"].wait(40) == 3
    lines = [line for line in fleet.log("b").splitlines() if "journal has 1 partitions" in line]
    assert len(lines) == 1
    with pytest.raises(topics.TopicError, match="has 1 partitions, 2 are declared"):
        asyncio.run(topics.create(fleet.kafka, fleet.prefix, shards=2))
