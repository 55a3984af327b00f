"""A sampler and a verifier in one process that do no work. Invariant: every assignment is answered as the real ones answer it.

It gives credits by heartbeats, takes assignments from the log, gives the lease back when the samples are "out", and writes
the verdict: what is left is the cost of scheduling.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from schemas.assignments import AttemptAssigned
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import event_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.verdicts import Part, scored
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.scheduler.bench.board import Board
from services.scheduler.bench.names import number_of

BEAT_S = 1.0
VERDICT = scored([Part(name="nothing", weight=1.0, score=1.0)])


def verified(event: AttemptAssigned) -> Outgoing:
    """The verdict on an assignment's one sample."""
    trajectory = trajectory_id(event.task.id, event.attempt, 0)
    verdict = TrajectoryVerified(
        trajectory_id=trajectory,
        task_id=event.task.id,
        domain=event.task.domain,
        purpose=event.task.purpose,
        attempt=event.attempt,
        group_id=event.group_id,
        group_size=event.group_size,
        index=0,
        lease_id=event.lease_id,
        content="-",
        verdict=VERDICT,
    )
    return Outgoing(
        topic="rewards", event=verdict, key=event.group_id, id=event_id("TrajectoryVerified", trajectory)
    )


async def work(slots: int) -> None:
    """Answer assignments until told to stop."""
    kafka, prefix = os.environ["TEMPER_KAFKA"], os.environ["TEMPER_PREFIX"]
    board = Board.of_environment()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    producer = Producer(kafka, prefix, "light")
    reader = LogReader(kafka, prefix, ["assignments.standard"])
    await producer.start()
    await reader.start()
    beaten_at = float("-inf")
    try:
        while not stop.is_set():
            taken = [
                record.event
                for record in await reader.poll(BEAT_S / 4, slots)
                if isinstance(record.event, AttemptAssigned)
            ]
            for event in taken:
                board.begin(number_of(event.task.id))
            if not taken and time.monotonic() - beaten_at < BEAT_S:
                continue
            beaten_at = time.monotonic()
            released = tuple(Released(lease_id=event.lease_id, reason="finished") for event in taken)
            beat = WorkerHeartbeat(
                worker="light", service="sampler", pool="standard", slots=slots, released=released
            )
            await producer.emit(
                Outgoing(topic="heartbeats", event=beat, key="light"), *(verified(event) for event in taken)
            )
    finally:
        await reader.stop()
        await producer.stop()


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1])))
