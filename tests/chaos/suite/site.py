"""One installation under attack: its broker, its Redis, its processes, and what is told of them.

Invariant: every wait is for an event and has a deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from schemas.base import Event
from schemas.states import TaskState
from schemas.tasks import Task, TaskSubmitted
from services.runtime import topics
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from tests.chaos.suite.child import END_S
from tests.chaos.suite.layout import Layout, furnish
from tests.chaos.suite.processes import Processes
from tests.chaos.suite.seen import WATCHED, Seen

MOST_INTERRUPTIONS = 400
WAIT_S = 120.0
"""Longest wait for a step of a scenario, on a machine that has much else to do."""


class Site(Processes):
    """Use `open_site`."""

    def __init__(self, folder: Path, kafka: str, redis: str, prefix: str, layout: Layout) -> None:
        super().__init__(folder, kafka, redis, prefix, layout)
        self.broker: KafkaServer | None = None
        self.redis_server: RedisServer | None = None
        self.config, self.catalog, self.policies = furnish(folder, layout)
        self.producer = Producer(kafka, prefix, "outside")
        self.seen = Seen()
        self.submitted: set[str] = set()
        self.interruptions = 0
        self._closing = False
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._numbers: dict[str, int] = {}

    @property
    def states(self) -> dict[str, TaskState]:
        """Newest state of each task."""
        return self.seen.states

    # What is put on the log

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
        names = sorted(self.layout.domains)
        return [
            Task(id=f"{tag}{n}", domain=names[n % len(names)], prompt=f"say {n}", difficulty=difficulty)
            for n in self._next(tag, count)
        ]

    def of(self, domain: str, count: int) -> list[Task]:
        """New tasks of one domain."""
        tag = f"{domain}-"
        return [
            Task(id=f"{tag}{n}", domain=domain, prompt=f"say {n}", difficulty=0.5)
            for n in self._next(tag, count)
        ]

    def _next(self, tag: str, count: int) -> range:
        start = self._numbers.get(tag, 0)
        self._numbers[tag] = start + count
        return range(start, start + count)

    # What is waited for

    def all_ended(self) -> bool:
        """Whether every task, sub-tasks included, is in a terminal state."""
        return self.seen.all_ended(self.submitted)

    async def until(self, what: str, holds: Callable[[], bool], within_s: float = WAIT_S) -> float:
        """Wait for the log (or what is looked at whenever it is read) to make `holds` true; the seconds it took.

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

    async def progress(self, count: int, what: str = "some work done", within_s: float = WAIT_S) -> float:
        """Until `count` more tasks have ended, or all have; the seconds it took.

        Raises:
            AssertionError: as `until`.
        """
        goal = self.seen.ended() + count
        return await self.until(what, lambda: self.seen.ended() >= goal or self.all_ended(), within_s)

    async def busy(self, count: int) -> None:
        """Until `count` more tasks have ended and there is work in hand; more is given as long as there is none.

        Raises:
            AssertionError: as `until`.
        """
        await self.progress(count)
        await self._given("work in hand", lambda: self.seen.holding() > 0)

    async def heard(self, name: str) -> None:
        """Until the process that has this name now has sent a heartbeat, so that it is at work.

        Raises:
            AssertionError: as `until`.
        """
        shards = self.config.scheduler.shards
        names = {name, *(f"{name}/{shard}" for shard in range(shards))}
        await self.until(
            f"{name} at work",
            lambda: any(
                beat.worker in names and beat.pid == self.children[name].pid
                for beat in self.seen.beats.values()
            ),
        )

    async def holds(self, name: str, least: int = 3) -> None:
        """Until the worker that has this name now names so many leases; more is given to do as long as all has ended.

        Raises:
            AssertionError: as `until`.
        """
        await self.heard(name)
        await self._given(
            f"{name} holds {least} leases",
            lambda: len(self.seen.leases(name, self.children[name].pid)) >= least,
        )

    async def _given(self, what: str, holds: Callable[[], bool]) -> None:
        """Until something holds that needs work; more is given whenever all has ended before."""
        ends = time.monotonic() + WAIT_S
        while not holds():
            if self.all_ended():
                await self.submit(*self.tasks(30))
            left = ends - time.monotonic()
            if left <= 0.0:
                raise AssertionError(f"{what}: not within {WAIT_S:g} s; {self.stand()}")
            await self.until(what, lambda: holds() or self.all_ended(), left)

    async def all_read(self, within_s: float = WAIT_S) -> None:
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
                self.seen.read.get(shard, {}).get(name, 0) >= end
                for shard in range(self.config.scheduler.shards)
                for name, end in ends.items()
            ),
            within_s,
        )

    async def dead_letters(self, wanted: Mapping[str, int], within_s: float = WAIT_S) -> None:
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

    # The observer

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
                        self.seen.take(records)
                        self._changed.notify_all()
            except Unavailable as error:  # the broker is away: that is what is tried here
                self.interruptions += 1
                if self.interruptions > MOST_INTERRUPTIONS:
                    raise AssertionError(f"the log cannot be followed: {error}") from error
                await asyncio.sleep(0.1)
            finally:
                await reader.stop()

    def _check(self) -> None:
        if self._watching is not None and self._watching.done():
            self._watching.result()
        self.stands()

    async def close(self) -> None:
        """End everything that was started."""
        if self._watching is not None:
            # Asked to end, not cancelled: a client that is cancelled leaves its connection open.
            self._closing = True
            await asyncio.wait([self._watching], timeout=END_S)
        await self.end()
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
