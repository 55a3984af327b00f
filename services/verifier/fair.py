"""Whose turn it is. Invariant: a domain waits for at most one item of each other; within a domain, first in first out."""

from __future__ import annotations

from collections import OrderedDict, deque


class FairQueue[T]:
    """Round robin over the domains that have something waiting."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, domain: str, item: T) -> None:
        """Put `item` at the end of its domain's line; a domain that was idle comes last."""
        self._waiting.setdefault(domain, deque()).append(item)
        self._size += 1

    def pop(self) -> T:
        """The next item. Raises IndexError if there is none."""
        if not self._size:
            raise IndexError("nothing is waiting")
        domain, line = next(iter(self._waiting.items()))
        item = line.popleft()
        self._size -= 1
        if line:
            self._waiting.move_to_end(domain)
        else:
            del self._waiting[domain]
        return item
