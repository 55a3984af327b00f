"""Whose turn it is: the smallest virtual deadline, `arrived + min(SLACK * cost, CAP)`, `cost` a domain's usual seconds.

Invariant: no item is overtaken by one that arrives more than `min(SLACK * cost, CAP) + PATIENCE` after it. So a ten-minute
build never holds up a format check, and yet small jobs of all domains leave nearly in the order they came, as training
wants: a domain that is served late is trained on stale samples. Within a domain, first in first out. Pure: time is an
argument.

When more comes than can be judged, no order keeps all deadlines. Items that wait PATIENCE past theirs come first, and of their
domains the one that has had the fewest seconds for its weight (weighted fair queueing; a domain that comes anew starts
where the least of the others stands): whoever floods the line waits behind its own items, not everybody.

A long answer takes its turn stage by stage: with each it arrives anew for all other domains, so that no build of fifty stages
is one item, and stands first in its own domain, so that what was begun is finished before more is begun.

An order alone does not help a check that finds all slots taken by builds. So items of domains that take longer than LONG_S
are held back from the last free slot (line.py) for as long as there has been other work in the last RECENT_S.
"""

from __future__ import annotations

from collections import deque

SLACK = 20.0
CAP_S = 3600.0
PATIENCE_S = 30.0
LONG_S = 10.0
RECENT_S = 600.0
KEEP = 0.9
"""Share of the old estimate that a new cost leaves."""


class FairQueue[T]:
    """Lines of waiting items, one a domain."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[tuple[float, T]]] = {}
        self._cost: dict[str, float] = {}
        """Domain -> moving average of the seconds its items took; 0 while none is known."""
        self._bound: dict[str, float] = {}
        """Domain -> the most seconds its last item may take; stands for the cost while that is unknown."""
        self._had: dict[str, float] = {}
        """Domain -> seconds that its items took, divided by its weight when they came."""
        self._weight: dict[str, float] = {}
        self._size = 0
        self._short_at = float("-inf")

    def __len__(self) -> int:
        return self._size

    def push(
        self,
        domain: str,
        item: T,
        now: float,
        bound_s: float = 0.0,
        *,
        weight: float = 1.0,
        front: bool = False,
    ) -> None:
        """Put `item`, which takes `bound_s` at most, at the end of its domain's line; at its `front` if it was begun.

        `now` in seconds on any clock that does not go back. `weight` is the domain's, over 0.
        """
        if domain not in self._waiting:
            least = min((self._had[other] for other in self._waiting), default=0.0)
            self._had[domain] = max(self._had.get(domain, 0.0), least)
        self._weight[domain] = weight
        line = self._waiting.setdefault(domain, deque())
        if front:
            line.appendleft((now, item))
        else:
            line.append((now, item))
        self._size += 1
        self._bound[domain] = bound_s
        if not self.long(domain):
            self._short_at = now

    def long(self, domain: str) -> bool:
        """Whether its items are held back from the last free slot."""
        return self._cost.get(domain, self._bound.get(domain, 0.0)) > LONG_S

    def reserving(self, now: float) -> bool:
        """Whether a slot is to be left to short items."""
        return now - self._short_at < RECENT_S

    def ready(self, *, long_too: bool = True) -> bool:
        """Whether `pop` has something to give."""
        return self._size > 0 if long_too else any(not self.long(domain) for domain in self._waiting)

    def pop(self, now: float, *, long_too: bool = True) -> T:
        """The next item. Raises IndexError if there is none, or only long ones and those are not wanted."""
        domains = [domain for domain in self._waiting if long_too or not self.long(domain)]
        if not domains:
            raise IndexError("nothing is waiting")
        late = [domain for domain in domains if now - self._deadline(domain) > PATIENCE_S]
        # Who has had as much as another (nothing, mostly) goes by the deadline.
        domain = min(
            late or domains, key=lambda each: (self._had[each] if late else 0.0, self._deadline(each))
        )
        line = self._waiting[domain]
        _, item = line.popleft()
        self._size -= 1
        if not line:
            del self._waiting[domain]
        return item

    def charge(self, domain: str, seconds: float) -> None:
        """Note what an item of `domain` took."""
        self._had[domain] = self._had.get(domain, 0.0) + seconds / self._weight.get(domain, 1.0)
        known = self._cost.get(domain)
        self._cost[domain] = seconds if known is None else KEEP * known + (1.0 - KEEP) * seconds

    def _deadline(self, domain: str) -> float:
        return self._waiting[domain][0][0] + min(SLACK * self._cost.get(domain, 0.0), CAP_S)
