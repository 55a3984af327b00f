"""Whose turn it is: the smallest virtual deadline, `arrived + min(SLACK * cost, CAP)`, `cost` a domain's usual seconds.

Invariant: no item is overtaken by one that arrives more than `min(SLACK * cost, CAP)` after it. So a ten-minute build
never holds up a format check, and yet small jobs of all domains leave nearly in the order they came, as training wants:
a domain that is served late is trained on stale samples. Within a domain, first in first out. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque

SLACK = 20.0
CAP_S = 3600.0
KEEP = 0.9
"""Share of the old estimate that a new cost leaves."""


class FairQueue[T]:
    """Lines of waiting items, one a domain."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[float, T]]] = {}
        self._cost: dict[str, float] = {}
        """Domain -> moving average of the seconds its items took; 0 while none is known."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, domain: str, item: T, now: float) -> None:
        """Put `item` at the end of its domain's line; `now` in seconds on any clock that does not go back."""
        self._waiting.setdefault(domain, deque()).append((now, item))
        self._size += 1

    def pop(self) -> T:
        """The next item. Raises IndexError if there is none."""
        if not self._size:
            raise IndexError("nothing is waiting")
        domain = min(self._waiting, key=self._deadline)
        line = self._waiting[domain]
        _, item = line.popleft()
        self._size -= 1
        if not line:
            del self._waiting[domain]
        return item

    def charge(self, domain: str, seconds: float) -> None:
        """Note what an item of `domain` took."""
        known = self._cost.get(domain)
        self._cost[domain] = seconds if known is None else KEEP * known + (1.0 - KEEP) * seconds

    def _deadline(self, domain: str) -> float:
        return self._waiting[domain][0][0] + min(SLACK * self._cost.get(domain, 0.0), CAP_S)
