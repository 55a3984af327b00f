"""A worker that speaks the whole protocol and computes nothing: leases, heartbeats, verdicts, revocations, drains.

Invariant: what it does with an attempt follows from the task and the attempt alone, so that equal runs ask equal things of
the scheduler. It stands for a sampler and the verifier behind it. Run as `python -m tests.chaos.suite.worker`; how it behaves
is JSON in TEMPER_CHAOS_WORKER.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from typing import Any, NamedTuple

import msgspec

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import derive, event_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.verdicts import Part, Verdict, infra, scored
from services.runtime import lifecycle
from services.runtime.consumer import Done, WorkConsumer
from services.runtime.fence import EpochFence
from services.runtime.leases import LeaseTable
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Outgoing, Producer
from services.runtime.settings import Process
from services.runtime.wire import Record


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker behaves; shares of attempts are drawn from the attempt's own identity."""

    slots: int = 16
    heartbeat_s: float = 0.25
    shortest_s: float = 0.01
    longest_s: float = 0.15
    fails: float = 0.15
    """Attempts in which no sample passes."""
    broken: float = 0.03
    """Attempts whose samples all end in `infra`."""
    silent: float = 0.02
    """Attempts that are taken and forgotten: never named, never answered."""
    late: float = 0.02
    """Attempts that are forgotten like these and yet answered, long after the lease has run out."""
    twice: float = 0.1
    """Attempts whose verdicts are all written two times."""
    late_s: float = 4.0


def fate(task_id: str, attempt: int) -> float:
    """A number in [0, 1) that belongs to an attempt."""
    return int(derive("fate", task_id, attempt)[:12], 16) / float(16**12)


def seconds(manner: Manner, task_id: str, attempt: int) -> float:
    """How long the attempt takes."""
    share = int(derive("seconds", task_id, attempt)[:12], 16) / float(16**12)
    return manner.shortest_s + share * (manner.longest_s - manner.shortest_s)


class Held(NamedTuple):
    """A lease: its attempt, the work on it, and how many seconds a renewal lasts."""

    assigned: AttemptAssigned
    work: asyncio.Task[None]
    lasts: float


class Desk:
    """The leases of one worker and what becomes of them."""

    def __init__(self, manner: Manner, process: Process, producer: Producer) -> None:
        self._manner, self._name, self._producer = manner, process.worker, producer
        self._pool = process.config.sampler.pool
        self._leases = LeaseTable()
        self._held: dict[str, Held] = {}
        self._seen: set[str] = set()
        self._fence = EpochFence()
        self._late: set[asyncio.Task[None]] = set()
        self.released: list[Released] = []
        self.wake = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.draining = self.ending = False
        self.consumer: WorkConsumer | None = None
        """Whose partitions and rebalances the heartbeats tell of."""
        self._started = time.time()

    def handle(self, record: Record, done: Done) -> None:
        """One record of the assignments topic."""
        match record.event:
            case AttemptAssigned() as assigned if self._fence.passes(
                record.partition, assigned.shard, assigned.epoch
            ):
                self._take(assigned)
            case AttemptRevoked() as revoked if self._fence.passes(
                record.partition, revoked.shard, revoked.epoch
            ):
                self._seen.add(revoked.lease_id)
                self._drop(revoked.lease_id)
        done()

    def _take(self, assigned: AttemptAssigned) -> None:
        lease = assigned.lease_id
        if lease in self._seen or self.draining:
            return
        self._seen.add(lease)
        drawn = fate(assigned.task.id, assigned.attempt)
        manner = self._manner
        if drawn < manner.silent:
            return
        if drawn < manner.silent + manner.late:
            self._start(self._answer(assigned, after_s=manner.late_s), self._late)
            return
        lasts = assigned.lease_s
        self._leases.take(lease, time.monotonic() + lasts)
        work = asyncio.create_task(self._work(assigned))
        work.add_done_callback(self._ended)
        self._held[lease] = Held(assigned, work, lasts)
        self.wake.set()

    def _start(self, work: Coroutine[Any, Any, None], into: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work)
        into.add(task)
        task.add_done_callback(into.discard)
        task.add_done_callback(self._ended)

    async def _work(self, assigned: AttemptAssigned) -> None:
        await self._answer(assigned, after_s=seconds(self._manner, assigned.task.id, assigned.attempt))
        self._release(assigned.lease_id, done=True)

    async def _answer(self, assigned: AttemptAssigned, *, after_s: float) -> None:
        await asyncio.sleep(after_s)  # the work itself
        drawn = fate(assigned.task.id, assigned.attempt)
        manner = self._manner
        before = manner.silent + manner.late
        if before <= drawn < before + manner.broken:
            await self._verdicts(assigned, infra("the attempt was to break"))
            return
        passed = drawn >= before + manner.broken + manner.fails
        verdict = scored([Part(name="p", weight=1.0, score=1.0 if passed else 0.0)])
        for _ in range(2 if drawn > 1.0 - manner.twice else 1):
            await self._verdicts(assigned, verdict)

    async def _verdicts(self, assigned: AttemptAssigned, verdict: Verdict) -> None:
        task = assigned.task
        records = []
        for index in range(assigned.group_size):
            name = trajectory_id(task.id, assigned.attempt, index)
            event = TrajectoryVerified(
                trajectory_id=name,
                task_id=task.id,
                domain=task.domain,
                purpose=task.purpose,
                attempt=assigned.attempt,
                group_id=assigned.group_id,
                group_size=assigned.group_size,
                index=index,
                lease_id=assigned.lease_id,
                content="c",
                verdict=verdict,
                worker=self._name,
                batch=task.batch,
            )
            records.append(
                Outgoing("rewards", event, assigned.group_id, id=event_id("TrajectoryVerified", name))
            )
        await self._producer.emit(*records)

    def _release(self, lease: str, *, done: bool) -> None:
        self._leases.release(lease)
        if self._held.pop(lease, None) is not None:
            self.released.append(Released(lease_id=lease, reason="finished" if done else "abandoned"))
            self.wake.set()

    def _drop(self, lease: str) -> None:
        """Stop working under a lease that is not ours any more."""
        self._leases.release(lease)
        held = self._held.pop(lease, None)
        if held is not None:
            held.work.cancel()

    async def drain(self, deadline_s: float) -> None:
        """Finish what is held, or give it back."""
        self.draining = True
        self.wake.set()
        if self._held:
            await asyncio.wait({held.work for held in self._held.values()}, timeout=deadline_s)
        for lease, held in list(self._held.items()):
            held.work.cancel()
            await self._verdicts(held.assigned, infra("abandoned: drain"))
            self._release(lease, done=False)

    async def say(self) -> None:
        """One heartbeat."""
        now = time.monotonic()
        lapsed = set(self._held) - set(self._leases.live(now))
        for lease in lapsed:
            self._drop(lease)
        leases, released, self.released = tuple(self._held), tuple(self.released), []
        event = WorkerHeartbeat(
            worker=self._name,
            service="sampler",
            pool=self._pool,
            slots=self._manner.slots,
            leases=leases,
            released=released,
            draining=self.draining,
            policy_version=0,
            offsets={} if self.consumer is None else self.consumer.positions(),
            stats={} if self.consumer is None else dict(self.consumer.stats),
            pid=os.getpid(),
            started_at=self._started,
        )
        await self._producer.emit(Outgoing("heartbeats", event, self._name))
        for lease in leases:
            if lease in self._held:
                self._leases.renew([lease], now + self._held[lease].lasts)

    async def beat(self, period_s: float) -> None:
        """Heartbeats, one a period and one whenever leases have ended, until `ending`."""
        while not self.ending:
            self.wake.clear()
            await self.say()
            try:
                async with asyncio.timeout(period_s):
                    await self.wake.wait()
                    await asyncio.sleep(0.01)  # what ends together is told together
            except TimeoutError:
                continue

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)


async def run(process: Process, life: Lifecycle) -> None:
    """Work until told to stop."""
    manner = msgspec.json.decode(os.environ.get("TEMPER_CHAOS_WORKER", "{}"), type=Manner)
    producer = Producer(process.kafka, process.prefix, process.worker)
    await producer.start()
    pool = process.config.sampler.pool
    consumer = WorkConsumer(
        process.kafka,
        process.prefix,
        [f"assignments.{pool}"],
        f"sampler.{pool}",
        producer,
        window=4 * manner.slots,
        session_s=float(os.environ.get("TEMPER_CHAOS_SESSION_S", "3")),
    )
    desk = Desk(manner, process, producer)
    await consumer.start()
    desk.consumer = consumer
    beating = asyncio.create_task(desk.beat(manner.heartbeat_s))
    consuming = asyncio.create_task(consumer.run(desk.handle, life.stop))
    stopping = asyncio.create_task(life.stop.wait())
    life.progress.ready()
    watched: set[asyncio.Future[Any]] = {beating, consuming, stopping, desk.failed}
    try:
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
        await consuming
        await consumer.stop()
        await desk.drain(max(0.1, life.drain_s / 4.0))
        desk.ending = True
        desk.wake.set()
        await asyncio.wait_for(beating, 10.0)
        await desk.say()  # the last word: everything is given back
    finally:
        for task in (beating, consuming, stopping):
            task.cancel()
        await asyncio.gather(beating, consuming, stopping, return_exceptions=True)
        await consumer.stop()
        await producer.stop()


if __name__ == "__main__":
    raise SystemExit(lifecycle.main("sampler", run))
