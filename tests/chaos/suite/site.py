"""One installation under attack: its broker, its Redis, its processes, and what is told of them.

Invariant: every process is known by its id and is gone when the site closes; every wait is for an event and has a deadline.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from schemas.base import Event
from schemas.heartbeats import WorkerHeartbeat
from schemas.run import RunConfig
from schemas.states import TERMINAL, TaskState
from schemas.tasks import Task, TaskSubmitted
from services.runtime import topics
from services.runtime.catalog import Catalog
from services.runtime.errors import Unavailable
from services.runtime.fence import EpochFence
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.runtime.wire import Record
from services.scheduler.policies import Policies, policies_of
from tests.chaos.suite.worker import Manner

WATCHED = ["task-states", "heartbeats"]
MOST_INTERRUPTIONS = 400
HELD = ("leased", "running")
PROJECT = Path(__file__).resolve().parents[3]
READY_S = 60.0
"""A process that starts has this long to become ready."""
END_S = 30.0
CARD = """
name = "{name}"
layer = "{layer}"
summary = "Say the word."
dataset = "words.jsonl"
weight = {weight}
[verifier]
family = "format"
[ladder]
steps = [0.0]
[timeouts]
lease_s = {lease_s}
verify_s = {verify_s}
[retry]
failures = 1
infra = 60
backoff_s = 0.05
backoff_max_s = 0.4
{more}
"""


class Child:
    """A process of the site."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, since: int) -> None:
        """`since`: size of the log when it started."""
        self.name, self.process, self.log, self.since = name, process, log, since
        self.may_end = False
        """Whether it is meant to end by itself, or somebody has seen to it that it does."""
        self._over = asyncio.Event()
        self._handle = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._handle, self._exited)

    def _exited(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1
            self._over.set()

    def said(self) -> str:
        """What it has written."""
        with self.log.open("rb") as file:
            file.seek(self.since)
            return file.read().decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    async def ended(self, within_s: float = END_S) -> int:
        """Its exit status.

        Raises:
            AssertionError: it has not ended in time.
        """
        try:
            await asyncio.wait_for(self._over.wait(), within_s)
        except TimeoutError:
            raise AssertionError(
                f"{self.name} did not end within {within_s:g} s: {self.said()[-2000:]}"
            ) from None
        return self.process.wait(END_S)


@dataclass
class Layout:
    """What a site is made of. Times are short, so that what takes minutes in earnest takes seconds here."""

    domains: Mapping[str, float] = field(default_factory=lambda: {"echo": 1.0, "song": 2.0})
    """Name -> weight."""
    lease_s: float = 2.0
    verify_s: float = 6.0
    cards: Mapping[str, str] = field(default_factory=dict)
    """Name -> further tables of the card."""
    group_size: int = 2
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    manner: Manner = field(default_factory=Manner)


class Site:
    """Use `open_site`."""

    def __init__(self, folder: Path, kafka: str, redis: str, prefix: str, layout: Layout) -> None:
        self.folder, self.kafka, self.redis, self.prefix, self.layout = folder, kafka, redis, prefix, layout
        self.broker: KafkaServer | None = None
        self.redis_server: RedisServer | None = None
        folder.mkdir(parents=True, exist_ok=True)
        cards = folder / "cards"
        cards.mkdir(exist_ok=True)
        for name, weight in layout.domains.items():
            text = CARD.format(
                name=name,
                layer="foundation",
                weight=weight,
                lease_s=layout.lease_s,
                verify_s=layout.verify_s,
                more=layout.cards.get(name, ""),
            )
            (cards / f"{name}.toml").write_text(text)
        words = [
            {"prompt": f"say {n}", "spec": {"word": n}, "gold": str(n), "difficulty": 0.0} for n in range(64)
        ]
        (cards / "words.jsonl").write_text("\n".join(json.dumps(word) for word in words))
        table = {
            "name": "chaos",
            "domains": {"paths": [str(cards)]},
            "training": {"group_size": layout.group_size, "groups_per_step": 100_000},
            "scheduler": {"tick_s": 0.05, "ownership_s": 1.5, **layout.scheduler},
            "sampler": {"slots": layout.manner.slots, "heartbeat_s": layout.manner.heartbeat_s},
        }
        self.config = msgspec.convert(table, RunConfig)
        (folder / "config.json").write_bytes(msgspec.json.encode(self.config))
        self.catalog = Catalog.load((str(cards),))
        self.policies: Policies = policies_of(self.catalog.cards, self.config)
        self.children: dict[str, Child] = {}
        self.producer = Producer(kafka, prefix, "outside")
        self.states: dict[str, TaskState] = {}
        """Newest state of each task."""
        self.submitted: set[str] = set()
        self.read: dict[int, dict[str, int]] = {}
        """By shard: `topic/partition` -> offset up to which it has been read, by the schedulers' heartbeats."""
        self._kept: dict[str, asyncio.Task[None]] = {}
        self.restarts = 0
        self.interruptions = 0
        self._fence = EpochFence()
        self._closing = False
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._numbers: dict[str, int] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Of every process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPER_")}
        return kept | {
            "PYTHONPATH": str(PROJECT),
            "TEMPER_KAFKA": self.kafka,
            "TEMPER_REDIS": self.redis,
            "TEMPER_PREFIX": self.prefix,
            "TEMPER_CONFIG": str(self.folder / "config.json"),
            "TEMPER_RUN_DIR": str(self.folder),
            "TEMPER_DRAIN_S": "10",
            "TEMPER_FAULT_DIR": str(self.folder),
            "TEMPER_CHAOS_WORKER": msgspec.json.encode(self.layout.manner).decode(),
        }

    # Processes

    def start(self, module: str, name: str, **environment: str) -> Child:
        """Start a process under a name; the one that had it must have ended."""
        before = self.children.get(name)
        if before is not None and before.process.poll() is None:
            raise AssertionError(f"{name} still runs")
        path = self.folder / f"{name}.log"
        with path.open("ab") as log:
            since = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                env=self.environment | {"TEMPER_WORKER": name} | environment,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        child = self.children[name] = Child(name, process, path, since)
        child.may_end = bool(environment.get("TEMPER_FAULT"))
        return child

    def scheduler(self, name: str = "scheduler", **environment: str) -> Child:
        """Start a scheduler."""
        return self.start("services.scheduler", name, **environment)

    def worker(self, name: str = "worker-0", **environment: str) -> Child:
        """Start a worker."""
        return self.start("tests.chaos.suite.worker", name, **environment)

    def keep(self, module: str, name: str, **environment: str) -> None:
        """Start a process, and again whenever it ends, as a supervisor would; `kill` ends that."""

        async def supervise() -> None:
            while True:
                child = self.start(module, name, **environment)
                status = await child.ended(3600.0)
                if status == 2:  # wrong input: starting again would not help
                    raise AssertionError(f"{name} cannot work: {child.said()[-1000:]}")
                self.restarts += 1
                await asyncio.sleep(0.3)  # the supervisor's backoff

        self._kept[name] = asyncio.create_task(supervise(), name=f"keep {name}")

    async def let_go(self, name: str) -> None:
        """No more restarts."""
        keeper = self._kept.pop(name, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """End a process by a signal, for good; its exit status."""
        await self.let_go(name)
        child = self.children[name]
        child.may_end = True
        child.signal(signal.SIGCONT)
        child.signal(number)
        return await child.ended()

    async def ask(self, *words: str) -> tuple[int, Any]:
        """A command of the scheduler; its exit status and its JSON (or what it said)."""

        def call() -> tuple[int, Any]:
            done = subprocess.run(
                [sys.executable, "-m", "services.scheduler", *words, "--json"],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                timeout=90,
                check=False,
            )
            return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()

        return await asyncio.to_thread(call)

    # The log

    async def submit(self, *tasks: Task, priority: int = 0) -> None:
        """Put tasks on the log, acknowledged when this returns."""
        events = [
            Outgoing("tasks", TaskSubmitted(task=task, priority=priority), task.domain, id=f"in-{task.id}")
            for task in tasks
        ]
        self.submitted |= {task.id for task in tasks}
        await self.producer.emit(*events)

    async def say(self, topic: str, event: Event, key: str) -> None:
        """Put one event on the log."""
        await self.producer.emit(Outgoing(topic, event, key))

    def tasks(self, count: int, tag: str = "t", *, difficulty: float = 0.5) -> list[Task]:
        """New tasks, in turn over the domains."""
        start = self._numbers.get(tag, 0)
        self._numbers[tag] = start + count
        names = sorted(self.layout.domains)
        return [
            Task(id=f"{tag}{n}", domain=names[n % len(names)], prompt=f"say {n}", difficulty=difficulty)
            for n in range(start, start + count)
        ]

    def of(self, domain: str, count: int) -> list[Task]:
        """New tasks of one domain."""
        tag = f"{domain}-"
        start = self._numbers.get(tag, 0)
        self._numbers[tag] = start + count
        return [
            Task(id=f"{tag}{n}", domain=domain, prompt=f"say {n}", difficulty=0.5)
            for n in range(start, start + count)
        ]

    def holding(self, domain: str) -> int:
        """Attempts of a domain that hold a slot, by the task states."""
        return sum(state.domain == domain and state.state in HELD for state in self.states.values())

    def ended_in(self, domain: str) -> bool:
        """Whether every known task of a domain has ended."""
        return all(state.state in TERMINAL for state in self.states.values() if state.domain == domain)

    def ended(self) -> int:
        """Submitted tasks that have ended, and all that came of them."""
        return sum(state.state in TERMINAL for state in self.states.values())

    def all_ended(self) -> bool:
        """Whether every task, sub-tasks included, is in a terminal state."""
        known = self.states
        children = {child for state in known.values() for child in state.children}
        return all(
            name in known and known[name].state in TERMINAL for name in self.submitted | children | set(known)
        )

    async def until(self, what: str, holds: Callable[[], bool], within_s: float = 60.0) -> float:
        """Wait for the log to make `holds` true; the seconds it took.

        Raises:
            AssertionError: it is not so in time, or a process that should run has ended.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(within_s), self._changed:
                while not holds():
                    self._check()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: not within {within_s:g} s; {self.stand()}") from None
        return time.monotonic() - began

    async def all_read(self, within_s: float = 30.0) -> None:
        """Until a scheduler has read everything that lies in its input topics now.

        Raises:
            AssertionError: it has not in time.
        """
        reader = LogReader(self.kafka, self.prefix, ["tasks", "rewards", "checkpoints"])
        await reader.start()
        try:
            ends = {name: end for name, end in (await reader.end_offsets()).items() if end}
        finally:
            await reader.stop()
        await self.until(
            "everything read",
            lambda: all(
                self.read.get(shard, {}).get(name, 0) >= end
                for shard in range(self.config.scheduler.shards)
                for name, end in ends.items()
            ),
            within_s,
        )

    async def dead_letters(self, wanted: Mapping[str, int], within_s: float = 30.0) -> None:
        """Wait until as many records as `wanted` lie in the dead-letter topic of each topic.

        Raises:
            AssertionError: there are more, or fewer for too long.
        """
        reader = LogReader(self.kafka, self.prefix, [f"{topic}.dlq" for topic in wanted])
        await reader.start()
        try:
            ends = time.monotonic() + within_s
            while True:
                found = dict.fromkeys(wanted, 0)
                for name, end in (await reader.end_offsets()).items():
                    found[name.rpartition("/")[0].removesuffix(".dlq")] += end
                if found == dict(wanted):
                    return
                if time.monotonic() > ends or any(found[topic] > count for topic, count in wanted.items()):
                    raise AssertionError(f"dead letters are {found}, {dict(wanted)} records cannot be read")
                await asyncio.sleep(0.1)  # the broker tells nobody
        finally:
            await reader.stop()

    async def progress(self, count: int, what: str = "some work done", within_s: float = 60.0) -> float:
        """Until `count` more tasks have ended, or all have; the seconds it took.

        Raises:
            AssertionError: as `until`.
        """
        goal = self.ended() + count
        return await self.until(what, lambda: self.ended() >= goal or self.all_ended(), within_s)

    def stand(self) -> str:
        """Where things stand, in a few lines."""
        counts: dict[str, int] = {}
        for state in self.states.values():
            counts[state.state] = counts.get(state.state, 0) + 1
        missing = len(self.submitted - self.states.keys())
        lines = [f"states {counts}, {missing} submitted tasks unheard of"]
        lines += [
            f"{child.name} (status {child.process.poll()}): {child.said().strip()[-600:]}"
            for child in self.children.values()
        ]
        return "\n".join(lines)

    async def watch(self) -> None:
        """Follow the task states from the beginning, through any failure of the broker."""
        self._watching = asyncio.create_task(self._follow(), name="watch")

    async def _follow(self) -> None:
        positions: dict[str, int] = {}
        while not self._closing:
            reader = LogReader(self.kafka, self.prefix, WATCHED, start=positions or "earliest")
            try:
                await reader.start()
                while not self._closing:
                    records = await reader.poll(0.2)
                    positions = reader.positions()
                    async with self._changed:
                        for record in self._fence.admitted(records):
                            self._seen(record)
                        self._changed.notify_all()
            except Unavailable as error:  # the broker is away: that is what is tried here
                self.interruptions += 1
                if self.interruptions > MOST_INTERRUPTIONS:
                    raise AssertionError(f"the log cannot be followed: {error}") from error
                await asyncio.sleep(0.1)
            finally:
                await reader.stop()

    def _seen(self, record: Record) -> None:
        match record.event:
            case TaskState() as state:
                self.states[state.task_id] = state
            case WorkerHeartbeat(service="scheduler") as beat:
                _, slash, number = beat.worker.rpartition("/")
                read = self.read.setdefault(int(number) if slash else 0, {})
                for name, offset in beat.offsets.items():
                    read[name] = max(offset, read.get(name, 0))

    def _check(self) -> None:
        if self._watching is not None and self._watching.done():
            self._watching.result()
        for keeper in self._kept.values():
            if keeper.done():
                keeper.result()
        for name, child in self.children.items():
            if not child.may_end and name not in self._kept and child.process.poll() is not None:
                raise AssertionError(
                    f"{name} ended by itself, status {child.process.poll()}: {child.said().strip()[-1500:]}"
                )

    async def close(self) -> None:
        """End everything that was started."""
        if self._watching is not None:
            # Asked to end, not cancelled: a client that is cancelled leaves its connection open.
            self._closing = True
            await asyncio.wait([self._watching], timeout=END_S)
        for name in list(self._kept):
            await self.let_go(name)
        for child in self.children.values():
            child.signal(signal.SIGCONT)
            child.signal(signal.SIGKILL)
        for child in self.children.values():
            await child.ended()
        await self.producer.stop()


@asynccontextmanager
async def open_site(
    folder: Path, kafka: str, redis: str, prefix: str, layout: Layout | None = None
) -> AsyncIterator[Site]:
    """A site on a broker and a Redis that run already."""
    site = Site(folder, kafka, redis, prefix, layout or Layout())
    shards = site.config.scheduler.shards
    await topics.create(kafka, prefix, shards=shards)
    await site.producer.start()
    try:
        await site.watch()
        yield site
    finally:
        await site.close()
