"""More work than the pool can do: the consumer pauses, memory stays bounded, and all of it is done in the end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.cards import parse_card
from schemas.ids import group_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.tasks import Task
from schemas.topics import TRAJECTORIES
from schemas.trajectories import TrajectoryCompleted
from services.runtime import topics
from services.runtime.blobs import Blobs
from services.runtime.consumer import WorkConsumer
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.verifier.handlers import Handler
from services.verifier.outbox import Outbox
from services.verifier.pool import Pool

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
COUNT = 10_000
TEXT = "x" * 6000
WINDOW = 256
GROWTH_MIB = 40
"""Of the process; all records together have 60 MiB."""
CARD = parse_card(
    'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="format"\n', "card"
)
# A worker that answers nothing before the gate is open; no jail is needed to hold one up.
WORKER = """
import sys, time
from pathlib import Path
from services.verifier.frames import HEAD, Ready, Reply, encode, size
from schemas.verdicts import Part, scored
gate, out, source = Path(sys.argv[1]), sys.stdout.buffer, sys.stdin.buffer
reply = encode(Reply(verdict=scored([Part(name="p", weight=1.0, score=0.5)])))
out.write(encode(Ready(isolation="none: a test"))); out.flush()
while head := source.read(HEAD):
    source.read(size(head))
    while not gate.exists():
        time.sleep(0.01)
    out.write(reply); out.flush()
"""


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def completed(number: int) -> Outgoing:
    task = Task(id=f"d-{number}", domain="d", prompt="p", spec={"constraints": [{"id": "case:upper"}]})
    group = group_id(task.id, 1)
    event = TrajectoryCompleted(
        trajectory_id=trajectory_id(task.id, 1, 0),
        task=task,
        attempt=1,
        group_id=group,
        group_size=1,
        index=0,
        lease_id="l",
        prompt_ids=[1],
        token_ids=[number],
        logprobs=[-1.0],
        spans=(),
        finish="stop",
        text=f"{number} {TEXT}",
    )
    return Outgoing(topic=TRAJECTORIES.name, event=event, key=group)


async def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.05)


async def verdicts(kafka: str, prefix: str) -> set[str]:
    reader = LogReader(kafka, prefix, ["rewards"], start="earliest")
    await reader.start()
    found: set[str] = set()
    end = time.monotonic() + 30
    try:
        while len(found) < COUNT and time.monotonic() < end:
            events = [record.event for record in await reader.poll(0.3)]
            found.update(event.task_id for event in events if isinstance(event, TrajectoryVerified))
    finally:
        await reader.stop()
    return found


def test_ten_thousand_queued_trajectories(tmp_path: Path, kafka: str, prefix: str) -> None:
    script, gate = tmp_path / "worker.py", tmp_path / "gate"
    script.write_text(WORKER)

    async def go() -> None:
        await topics.create(kafka, prefix, ("standard",))
        producer = Producer(kafka, prefix, "test")
        await producer.start()
        for start in range(0, COUNT, 500):
            await producer.emit(*(completed(number) for number in range(start, start + 500)))
        pool = Pool(
            {"d": CARD},
            tmp_path,
            slots=2,
            cache=1000,
            queue_limit=WINDOW,
            margin_s=120.0,
            command=(sys.executable, str(script), str(gate)),
        )
        await pool.start()
        consumer = WorkConsumer(kafka, prefix, [TRAJECTORIES.name], "verifier", producer, window=WINDOW)
        await consumer.start()
        outbox, stop = Outbox(producer), asyncio.Event()
        handler = Handler(pool, outbox, lambda: Blobs(str(tmp_path / "blobs")), "w", 3)
        before = resident_mib()
        beside = [asyncio.create_task(outbox.run()), asyncio.create_task(consumer.run(handler.handle, stop))]
        try:
            await until(lambda: consumer.unfinished == WINDOW, 60, "the window does not fill")
            held = []
            for _ in range(20):  # two seconds at a standstill
                await asyncio.sleep(0.1)
                assert consumer.unfinished <= WINDOW
                assert pool.unfinished <= WINDOW + 2
                held.append(consumer._consumer.paused() == consumer._consumer.assignment() != set())
            assert all(held[5:]), "the consumer is not paused"
            grown = resident_mib() - before
            gate.touch()
            await until(lambda: consumer.stats["done"] == COUNT, 120, "not all is done")
            await handler.drained()
            await outbox.flushed()
            assert grown < GROWTH_MIB
            assert resident_mib() - before < GROWTH_MIB
            assert (consumer.unfinished, pool.unfinished) == (0, 0)
        finally:
            stop.set()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await consumer.stop()
            await pool.close()
            await producer.stop()
        assert await verdicts(kafka, prefix) == {f"d-{number}" for number in range(COUNT)}

    asyncio.run(go())
