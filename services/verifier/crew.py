"""The worker processes of a pool. Invariant: none runs before all have their numbers, and none runs after `close`.

Each worker has a slot of the jail, whose number nobody else on the machine has at the time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from services.verifier.bounds import Bounds
from services.verifier.hand import Hand, WorkerLostError
from services.verifier.jail import JailUnavailable, hierarchy, numbers, ownership

log = logging.getLogger(__name__)


class Crew:
    """`slots` worker processes, started and ended together."""

    def __init__(self, slots: int, root: Path, command: Sequence[str], bounds: Bounds) -> None:
        self._hands = [Hand("", root, command, bounds) for _ in range(slots)]  # named by `start`
        self._reserved: numbers.Reserved | None = None

    def __len__(self) -> int:
        return len(self._hands)

    def __iter__(self) -> Iterator[Hand]:
        return iter(self._hands)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run."""
        return [hand.pid for hand in self._hands if hand.pid]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the slots, while they run."""
        return self._reserved.numbers if self._reserved is not None else ()

    async def start(self) -> str:
        """Start all workers; how they are isolated.

        Raises JailUnavailable with one line if a slot cannot be made; the caller then still calls `close`.
        """
        self._reserved = numbers.reserve(len(self))
        for hand, number in zip(self._hands, self._reserved.numbers, strict=True):
            hand.name = f"temper-v{os.getpid()}-{number}"
        # All of them to the end, so that none is still being started when the others are ended.
        started = await asyncio.gather(*(hand.start() for hand in self._hands), return_exceptions=True)
        failures = [each for each in started if isinstance(each, BaseException)]
        if failures:
            first = min(failures, key=lambda each: isinstance(each, WorkerLostError))
            if isinstance(first, WorkerLostError):
                raise JailUnavailable(
                    f"a verifier worker did not start: {first}; its log is above"
                ) from first
            raise first
        return next(str(each) for each in started)

    async def close(self) -> None:
        """End all workers and give their numbers back."""
        await asyncio.gather(*(hand.close() for hand in self._hands))
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None


def sweep() -> None:
    """Remove what killed workers left; while a pool runs, their successors do that."""
    try:
        ownership.sweep(hierarchy.discover())
    except (JailUnavailable, OSError) as error:
        log.warning("what killed workers left is still there: %s", error)
