"""Slots and training tickets among the scheduler's shards. Invariant: no more is granted than there is.

With one shard nothing of this is written. Resources are named `slots:<pool>` and `train`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from schemas.base import Data, Event

Whole = Annotated[int, Meta(ge=0)]


class Line(Data, frozen=True, kw_only=True):
    """One resource, as a shard sees its own use of it."""

    held: Whole = 0
    """Units that are in use: leases of a pool; training groups accepted or under way."""
    want: Whole = 0
    """Units it could use now, those in use included."""


class ShardReported(Event, frozen=True, kw_only=True):
    """What a shard uses and could use, and the newest grant it obeys."""

    shard: Whole
    epoch: int
    seq: int
    """Its journal entry; of two reports the one with the higher (epoch, seq) is the newer."""
    obeys: Whole = 0
    """Number of the newest grant it has taken."""
    lines: dict[str, Line] = {}
    weight: Annotated[float, Meta(ge=0.0)] = 0.0
    """Sum of the weights of the domains that have work."""
    accepted: Whole = 0
    """Training groups that ended usable and complete."""


class CreditsGranted(Event, frozen=True, kw_only=True):
    """How much each shard may use from now on; replaces every grant with a lower number."""

    number: Annotated[int, Meta(ge=1)]
    credits: dict[str, tuple[int, ...]] = {}
    """Resource -> units by shard."""
