"""Who works on what, until when. Invariant: occupancy is the set of unexpired leases, never a counter.

Pure: time is an argument, in seconds since the epoch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class LeaseTable:
    """Leases with their expiries."""

    def __init__(self) -> None:
        self._expiry: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def take(self, lease_id: str, expires_at: float) -> bool:
        """Hold a lease; False if it is held already, whose expiry then stays."""
        if lease_id in self._expiry:
            return False
        self._set(lease_id, expires_at)
        return True

    def renew(self, lease_ids: Iterable[str], until: float) -> list[str]:
        """Extend those of `lease_ids` that are held; an expiry never moves backwards. Returns the unknown ones."""
        unknown = []
        for lease_id in lease_ids:
            expiry = self._expiry.get(lease_id)
            if expiry is None:
                unknown.append(lease_id)
            elif until > expiry:
                self._set(lease_id, until)
        return unknown

    def release(self, lease_id: str) -> bool:
        """Give a lease back; False if it is not held."""
        return self._expiry.pop(lease_id, None) is not None

    def live(self, now: float) -> list[str]:
        """Leases that hold at `now`, sorted by id."""
        return sorted(lease_id for lease_id, expiry in self._expiry.items() if expiry > now)

    def expire(self, now: float) -> list[str]:
        """Drop and return the leases that have run out at `now`, earliest first, ties by id."""
        gone = []
        while self._heap and self._heap[0][0] <= now:
            expiry, lease_id = heapq.heappop(self._heap)
            if self._expiry.get(lease_id) == expiry:
                del self._expiry[lease_id]
                gone.append(lease_id)
        return gone

    def expires_at(self, lease_id: str) -> float | None:
        """Expiry of a held lease."""
        return self._expiry.get(lease_id)

    def next_expiry(self) -> float | None:
        """The earliest expiry, None if nothing is held."""
        while self._heap and self._expiry.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # Renewed or released since.
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._expiry)

    def __contains__(self, lease_id: object) -> bool:
        return lease_id in self._expiry

    def _set(self, lease_id: str, expires_at: float) -> None:
        self._expiry[lease_id] = expires_at
        heapq.heappush(self._heap, (expires_at, lease_id))
        if len(self._heap) > 64 + 4 * len(
            self._expiry
        ):  # Renewals leave stale entries behind; keep memory bounded.
            self._heap = [(expiry, held) for held, expiry in self._expiry.items()]
            heapq.heapify(self._heap)
