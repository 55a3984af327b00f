"""Where a record lies in the log. Invariant: places are ordered as the log's clock saw their records."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where a record lies in the log; ordered as the log's clock saw them."""

    timestamp_ms: int
    topic: str
    partition: int
    offset: int

    @property
    def source(self) -> str:
        """`topic/partition`."""
        return f"{self.topic}/{self.partition}"
