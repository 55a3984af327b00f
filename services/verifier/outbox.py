"""Events out, in batches. Invariant: a record counts as done only after every event made from it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.runtime import faults
from services.runtime.consumer import Done
from services.runtime.producer import Outgoing, Producer

BATCH = 256


class Outbox:
    """Collects what handlers want to say and writes whatever has gathered since the last write."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._entries: asyncio.Queue[tuple[Sequence[Outgoing], Done]] = asyncio.Queue()

    def put(self, events: Sequence[Outgoing], done: Done) -> None:
        """Write `events` with the next batch, then call `done`. Bounded by the consumer's window of unfinished records."""
        self._entries.put_nowait((events, done))

    async def run(self) -> None:
        """Write until cancelled. Raises ProducerError: what is not written is not done, and will be delivered again."""
        while True:
            batch = [await self._entries.get()]
            while len(batch) < BATCH and not self._entries.empty():
                batch.append(self._entries.get_nowait())
            faults.at("verifier:before-emit")
            await self._producer.emit(*(event for events, _ in batch for event in events))
            faults.at("verifier:after-emit")
            for _, done in batch:
                done()
                self._entries.task_done()

    async def flushed(self) -> None:
        """Until everything put in so far is written; needs `run` running."""
        await self._entries.join()
