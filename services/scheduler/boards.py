"""Which domain of a board gives the next task. Invariant: `first` is the smallest key of those that may give one, in O(log n).

Derived from the records, never stored. Domains that draw on what their cohort lends stand in a group, of which only the
first is in the running. So a cohort that has nothing to lend is put aside as a whole, and comes back as a whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from services.scheduler.lanes import Lane

Key = tuple[int, int, float, str, str]
"""Place of a domain among those of its board, smallest first: borrows (0 or 1), exponent and mantissa of its usage, name, and
the cohort that its next attempt draws on (empty: none)."""


class Board(dict[str, Lane]):
    """Lanes of one pool and purpose by domain, and the order of those domains that may give a task.

    A domain is in `places` while it has a ready task and room of its own. Heap items that are not its key are leftovers.
    """

    __slots__ = ("groups", "large", "parked", "places", "sizes", "tops")

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, Key] = {}
        self.tops: list[Key] = []
        """A heap: keys without a cohort, and of each group that is not parked the first."""
        self.groups: dict[str, list[Key]] = {}
        """Cohort -> heap of the keys that draw on it."""
        self.parked: dict[str, None] = {}
        """Cohorts that can give nothing for now."""
        self.large: list[tuple[int, str]] = []
        """A heap of domains whose next task needs more slots than the pool can give, by how many."""
        self.sizes: dict[str, int] = {}
        """Those domains and slots; what is in the heap and not here is a leftover."""

    def enter(self, domain: str, key: Key | None) -> None:
        """Give a domain its key, or none."""
        if key is None:
            self.places.pop(domain, None)
            return
        before = self.places.get(domain)
        if before == key:
            return
        self.places[domain] = key
        cohort = key[4]
        if cohort:
            group = self.groups.setdefault(cohort, [])
            heapq.heappush(group, key)
            if len(group) > 2 * len(self.places) + 64:
                group[:] = sorted(filter(self._holds, group))
                self._promote(cohort)
                return
            if group[0] is not key or cohort in self.parked:
                return
        elif before is not None and not before[4] and self.tops and self.tops[0] is before:
            # so it is after each lease
            heapq.heapreplace(self.tops, key)
            return
        heapq.heappush(self.tops, key)
        if len(self.tops) > 2 * len(self.places) + 64:
            self.tops = sorted(found for found in self.places.values() if not found[4])
            for name in self.groups:
                self._promote(name)

    def first(self) -> Key | None:
        """The smallest key; None without any."""
        tops, places = self.tops, self.places
        while tops:
            key = tops[0]
            cohort = key[4]
            if places.get(key[3]) is key and (not cohort or self._leads(key)):
                return key
            heapq.heappop(tops)
            if cohort and self.groups[cohort] and self.groups[cohort][0] is key:
                self._promote(cohort)
        return None

    def park(self, cohort: str) -> None:
        """Put aside all domains that draw on a cohort, until `wake`."""
        self.parked[cohort] = None

    def wake(self, cohort: str) -> None:
        """A cohort may be able to give something again."""
        if cohort in self.parked:
            del self.parked[cohort]
            self._promote(cohort)

    def set_aside(self, domain: str, slots: int) -> None:
        """Pass over a domain whose next task needs more slots than the pool can give, until it is among `fitting`."""
        self.places.pop(domain, None)
        if self.sizes.get(domain) != slots:
            self.sizes[domain] = slots
            heapq.heappush(self.large, (slots, domain))

    def fitting(self, most: int) -> Iterator[str]:
        """Domains that were set aside for no more slots than this; they are not any more."""
        while self.large and self.large[0][0] <= most:
            slots, domain = heapq.heappop(self.large)
            if self.sizes.get(domain) == slots:
                del self.sizes[domain]
                yield domain

    def _holds(self, key: Key) -> bool:
        return self.places.get(key[3]) is key

    def _leads(self, key: Key) -> bool:
        """Whether a key is the first of a group in the running."""
        return key[4] not in self.parked and self.groups[key[4]][0] is key

    def _promote(self, cohort: str) -> None:
        """Bring the first of a group into the running."""
        group = self.groups.get(cohort)
        while group and not self._holds(group[0]):
            heapq.heappop(group)
        if group and cohort not in self.parked:
            heapq.heappush(self.tops, group[0])
