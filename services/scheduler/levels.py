"""Sharing units so that shares even out. Invariant: who is furthest behind gets the next unit; the same rule as between domains.

A shard's virtual time is the service seconds that its domains have had over the sum of their weights: what fair order compares
domains by, one level up. Units are given so that, once they have been used, virtual times are level. What is left over by whole
numbers goes to whoever would then be furthest behind, so a share of less than one unit is a unit now and then, never none.
Pure; sums run over the shards in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

EPSILON = 1e-9
LIGHT = 1e-9
"""Weights up to this are none."""


class Side(NamedTuple):
    """One shard in a sharing."""

    limit: int
    """Units that it can use."""
    weight: float
    virtual: float
    """Service seconds over weight so far."""
    seconds: float
    """Service seconds that it makes of a unit, above 0."""

    @property
    def slope(self) -> float:
        """Units that raise its virtual time by one second."""
        return self.weight / self.seconds

    def units_at(self, level: float) -> float:
        """Units that bring it to this virtual time."""
        return min(float(self.limit), max(0.0, (level - self.virtual) * self.slope))


def share_out(units: int, sides: Sequence[Side]) -> list[int]:
    """`units` whole ones, none over its limit; all are given out if the limits allow it. Sides that weigh nothing come last."""
    given = [0] * len(sides)
    for weighs in (True, False):
        chosen = [at for at, side in enumerate(sides) if side.limit > 0 and (side.weight > LIGHT) == weighs]
        part = [sides[at] if weighs else sides[at]._replace(weight=1.0) for at in chosen]
        for at, amount in zip(chosen, _whole(units, part), strict=True):
            given[at] = amount
            units -= amount
    return given


def kept(units: int, share: float, wanted: int, *, behind: bool) -> int:
    """Of `units`, those that a class keeps which others go before: `share` of them, no more than are `wanted`.

    Of what is left over by whole numbers it gets one unit while it is `behind`, so a share of less than one is a unit now and
    then, never none.
    """
    exact = units * share
    whole = int(exact + EPSILON)
    return min(units, wanted, whole + int(behind and exact > whole + EPSILON))


def level_of(units: float, sides: Sequence[Side]) -> float:
    """Virtual time at which the sides have taken `units` together (at most the sum of their limits); they all weigh something."""
    marks = sorted(
        {mark for side in sides for mark in (side.virtual, side.virtual + side.limit / side.slope)}
    )
    low = marks[0]
    for high in marks[1:]:
        if sum([side.units_at(high) for side in sides]) >= units:
            below = sum([side.units_at(low) for side in sides])
            rising = sum(
                [
                    side.slope
                    for side in sides
                    if side.virtual <= low and side.virtual + side.limit / side.slope >= high
                ]
            )
            return low + (units - below) / rising if rising > 0.0 else high
        low = high
    return low


def _whole(units: int, sides: Sequence[Side]) -> list[int]:
    units = max(0, min(units, sum(side.limit for side in sides)))
    if not units:
        return [0] * len(sides)
    level = level_of(units, sides)
    given = [int(side.units_at(level) + EPSILON) for side in sides]
    while sum(given) > units:  # rounding of floats: take back from who is furthest ahead
        ahead = max(
            (at for at, amount in enumerate(given) if amount),
            key=lambda at: (sides[at].virtual + given[at] / sides[at].slope, at),
        )
        given[ahead] -= 1
    while sum(given) < units:
        behind = min(
            (at for at, side in enumerate(sides) if given[at] < side.limit),
            key=lambda at: (sides[at].virtual + given[at] / sides[at].slope, at),
        )
        given[behind] += 1
    return given
