"""Whose turn it is: weighted fair queueing on service seconds, equal weights; within a domain, first in first out.

Invariant: a domain that asks for little never waits behind one that asks for much. Taking turns item by item would not
keep it: a format check costs microseconds and a build seconds, and a domain with as many checks as another has builds
would fall behind without bound. Start-time fair queueing (Goyal, Vin, Cheng 1996) with measured cost.
"""

from __future__ import annotations

from collections import deque


class FairQueue[T]:
    """Next is the head of the waiting domain with the least service so far."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._service: dict[str, float] = {}
        """Domain -> virtual time: seconds of service, raised to the others' level after being idle."""
        self._clock = 0.0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, domain: str, item: T) -> None:
        """Put `item` at the end of its domain's line; idleness earns no credit."""
        line = self._waiting.get(domain)
        if line is None:
            line = self._waiting[domain] = deque()
            self._service[domain] = max(self._service.get(domain, 0.0), self._clock)
        line.append(item)
        self._size += 1

    def pop(self) -> T:
        """The next item. Raises IndexError if there is none."""
        if not self._size:
            raise IndexError("nothing is waiting")
        domain = min(self._waiting, key=lambda name: self._service[name])
        self._clock = self._service[domain]
        line = self._waiting[domain]
        item = line.popleft()
        self._size -= 1
        if line:
            # Behind its equals, so that domains without a known cost take turns.
            self._waiting[domain] = self._waiting.pop(domain)
        else:
            del self._waiting[domain]
        return item

    def charge(self, domain: str, seconds: float) -> None:
        """Note what an item of `domain` cost."""
        self._service[domain] = self._service.get(domain, self._clock) + max(0.0, seconds)
