"""The scheduler's journal: the order of its inputs. Invariant: folding the journal gives the live state, byte for byte."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.base import Data, Event


class Range(Data, frozen=True, kw_only=True):
    """Records [first, next) of a partition; offsets inside it that hold no record are skipped."""

    topic: str
    partition: int
    first: int
    next: int


class BatchFolded(Event, frozen=True, kw_only=True):
    """The scheduler consumed these ranges, in this order, at this time; written before the fold acts on them."""

    run: str
    seq: Annotated[int, Meta(ge=1)]
    now: float
    """Seconds since the epoch; the only clock the fold sees."""
    ranges: tuple[Range, ...] = ()
    epoch: int = 0
    """Incarnation of the scheduler that wrote it."""
    shard: int = 0
    shards: int = 1
    """Into how many shards the domains were divided; a log has one number from its beginning."""
    caught_up: bool = True
    """False while the scheduler reads a backlog: nothing expires and nothing is dispatched in such a batch."""
