"""The line of answers before the slots.

Invariant: bounded, in fair order, and never are all slots taken by long ones while there are others (with two or more).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from services.verifier.fair import FairQueue

type Place = Literal["room", "extra", "none"]
LOOK_S = 5.0
"""Seconds between looks at items that are only held back: it ends with time alone."""


class Line[T]:
    """At most `limit` waiting items, and as many that nobody waits for, for `slots` takers."""

    def __init__(self, slots: int, limit: int) -> None:
        self._slots = slots
        self._queue: FairQueue[tuple[str, T, Place]] = FairQueue()
        self._room, self._extra_room = asyncio.Semaphore(limit), limit
        self._changed = asyncio.Event()
        self._busy = 0
        self._long: set[int] = set()
        """Identities of the taken items that were long when taken."""

    @property
    def unfinished(self) -> int:
        """Items waiting or taken and not ended."""
        return len(self._queue) + self._busy

    async def room(self) -> None:
        """Wait for a place; a `push` must follow."""
        await self._room.acquire()

    def push(self, domain: str, item: T, bound_s: float, weight: float = 1.0) -> None:
        """Put an item, which takes `bound_s` at most, into the place that `room` gave; `weight` is its domain's."""
        self._push(domain, item, bound_s, weight, "room")

    def push_extra(self, domain: str, item: T, bound_s: float, weight: float = 1.0) -> bool:
        """As `push`, into one of the `limit` further places, which nobody waits for; False if all are taken."""
        if self._extra_room == 0:
            return False
        self._extra_room -= 1
        self._push(domain, item, bound_s, weight, "extra")
        return True

    def push_again(self, domain: str, item: T, bound_s: float, weight: float = 1.0) -> None:
        """Put an item that was taken and has more to do at the head of its domain's line; it needs no place.

        So a domain has at most as many of these as there are slots.
        """
        self._push(domain, item, bound_s, weight, "none")

    def _push(self, domain: str, item: T, bound_s: float, weight: float, place: Place) -> None:
        front = place == "none"
        self._queue.push(domain, (domain, item, place), time.monotonic(), bound_s, weight=weight, front=front)
        self._changed.set()

    def _pop(self, *, long_too: bool) -> tuple[str, T]:
        domain, item, place = self._queue.pop(time.monotonic(), long_too=long_too)
        if place == "extra":
            self._extra_room += 1
        elif place == "room":
            self._room.release()
        return domain, item

    async def take(self) -> T:
        """The next item, whose `end` must be told; waits for one."""
        long_too = self._long_allowed()
        while not self._queue.ready(long_too=long_too):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if len(self._queue) else None):
                    await self._changed.wait()
            long_too = self._long_allowed()
        domain, item = self._pop(long_too=long_too)
        self._busy += 1
        if self._queue.long(domain):
            self._long.add(id(item))
        return item

    def end(self, item: T, domain: str, seconds: float, *, tell: bool = True) -> None:
        """An item of `domain` that was taken has ended after `seconds`; `tell`: they say what such items take."""
        self._busy -= 1
        self._long.discard(id(item))
        if tell:
            self._queue.charge(domain, seconds)
        self._changed.set()

    def drain(self) -> Iterator[T]:
        """Everything that waits."""
        while len(self._queue):
            yield self._pop(long_too=True)[1]

    def _long_allowed(self) -> bool:
        alone = self._slots == 1 or not self._queue.reserving(time.monotonic())
        return alone or len(self._long) < self._slots - 1
