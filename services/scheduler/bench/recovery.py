"""How long a scheduler is away: recovery of many live tasks. Invariant: real broker, real Redis, the service's own code.

`python -m services.scheduler.bench.recovery [--tasks N]` writes N submissions and the journal of their consumption to an embedded
stack, then recovers from the bare log, from Redis and from the blob store, each of these with a tail. One JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemas.ids import event_id
from schemas.journal import BatchFolded, Range
from schemas.run import RunConfig
from schemas.tasks import Task, TaskSubmitted
from schemas.topics import TASKS
from services.runtime import topics
from services.runtime.blobs import Blobs
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.runtime.stack import Stack
from services.scheduler.durable import Durable
from services.scheduler.journal import outgoing
from services.scheduler.policies import Policies, Policy
from services.scheduler.projection import Projection
from services.scheduler.recovery import Recovery
from services.scheduler.shard import recover
from services.scheduler.state import State
from services.scheduler.store import Store
from services.scheduler.turns import Mark

DOMAINS = 300
BATCH = 2000
TAIL = 10_000


class Still:
    """A state whose effects are out and that nobody changes."""

    def __init__(self, state: State, position: int) -> None:
        self.state, self._position = state, position

    async def at_rest[T](self, look: Callable[[Mark], T]) -> T:
        """Now is as good as any moment."""
        meta = self.state.meta
        return look((meta.epoch, meta.seq, self._position, dict(meta.offsets)))


async def measure(tasks: int, folder: Path) -> dict[str, Any]:
    """Figures in seconds, by what was recovered from."""
    policies = Policies(
        domains={f"d{n}": Policy() for n in range(DOMAINS)}, run="r", ready_cap=10 * tasks, eta=10**9
    )
    with Stack.start(folder) as stack:
        await topics.create(stack.kafka, "")
        process = Process(
            kafka=stack.kafka,
            redis=stack.redis,
            prefix="",
            blobs=str(folder / "blobs"),
            run_dir=folder,
            config=RunConfig(name="r"),
            worker="bench",
            health_port=0,
        )
        producer = Producer(stack.kafka, "", "bench")
        await producer.start()
        try:
            return await _recoveries(process, policies, producer, tasks)
        finally:
            await producer.stop()


async def _recoveries(process: Process, policies: Policies, producer: Producer, tasks: int) -> dict[str, Any]:
    found: dict[str, Any] = {"tasks": tasks}
    at = await _write(process, producer, 0, tasks, {}, 1)
    blobs = Blobs(process.blobs)
    store = Store(process.redis, "")
    recovery, found["from the log"] = await _timed(process, policies, store, producer, blobs)
    projection = Projection(recovery.state, store)
    began = time.monotonic()
    projection.offer(recovery.position)
    await projection.finish(recovery.position)
    found["whole state to Redis"] = time.monotonic() - began
    turns: Any = Still(recovery.state, recovery.position)
    began = time.monotonic()
    stored = await Durable(blobs, producer, policies, projection, turns).write()
    found["snapshot to the blob store"] = time.monotonic() - began
    found["snapshot bytes"] = stored.size
    epoch, seq = recovery.state.meta.epoch, recovery.state.meta.seq
    await _write(process, producer, tasks, min(TAIL, tasks), at, seq + 1, epoch)
    recovery, found["from Redis and a tail"] = await _timed(process, policies, store, producer, blobs)
    await store._client.delete(store._key)  # noqa: SLF001 (a Redis that was lost)
    recovery, found["from the blob store and a tail"] = await _timed(
        process, policies, store, producer, blobs
    )
    found["live"] = len(recovery.state.live)
    await store.close()
    return found


async def _timed(
    process: Process, policies: Policies, store: Store, producer: Producer, blobs: Blobs
) -> tuple[Recovery, float]:
    began = time.monotonic()
    recovery = await recover(process, policies, store, producer, blobs)
    seconds = time.monotonic() - began
    await recovery.stop()
    sys.stderr.write(
        f"recovered {len(recovery.state.live)} tasks from {recovery.came_from} in {seconds:.1f} s\n"
    )
    return recovery, seconds


async def _write(
    process: Process,
    producer: Producer,
    first: int,
    count: int,
    before: dict[int, int],
    seq: int,
    epoch: int = 1,
) -> dict[int, int]:
    """Write submissions, and the journal entries that a scheduler would have written; returns where `tasks` ends."""
    began = time.monotonic()
    for start in range(first, first + count, BATCH):
        batch = []
        for number in range(start, min(start + BATCH, first + count)):
            task = Task(
                id=f"task-{number:08d}", domain=f"d{number % DOMAINS}", prompt=f"What is {number} plus one?"
            )
            name = event_id("TaskSubmitted", task.id)
            batch.append(Outgoing(TASKS.name, TaskSubmitted(task=task), task.domain, name))
        await producer.emit(*batch)
    reader = LogReader(process.kafka, process.prefix, [TASKS.name])
    await reader.start()
    ends = {int(name.rpartition("/")[2]): end for name, end in (await reader.end_offsets()).items()}
    await reader.stop()
    at = {partition: before.get(partition, 0) for partition in ends}
    each = BATCH // len(ends)
    now = time.time()
    while any(at[partition] < end for partition, end in ends.items()):
        ranges = tuple(
            Range(
                topic=TASKS.name,
                partition=partition,
                first=at[partition],
                next=min(end, at[partition] + each),
            )
            for partition, end in sorted(ends.items())
            if at[partition] < end
        )
        at |= {part.partition: part.next for part in ranges}
        entry = BatchFolded(run="r", seq=seq, now=now, ranges=ranges, epoch=epoch)
        await producer.append(outgoing(entry), partition=0)
        seq += 1
    sys.stderr.write(f"{count} submissions written in {time.monotonic() - began:.1f} s\n")
    return at


def main(argv: Sequence[str]) -> int:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m services.scheduler.bench.recovery", allow_abbrev=False)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        document = asyncio.run(measure(arguments.tasks, Path(folder)))
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
