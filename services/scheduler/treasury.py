"""Sharing slots and training tickets among shards. Invariant: what all shards may hold is never more than there is.

A shard obeys the newest grant it has seen and takes a new unit only while it holds fewer than that grant. So after a report
that says "I hold h and obey grant n" it can never hold more than max(h, every grant numbered n or later), whatever becomes of
the messages between: lost, doubled, late or out of order. The sum of these bounds is kept within the capacity; a unit that one
shard is to get from another is granted when the other's report shows that it can no longer use it. A shard that is dead keeps
its bound until its successor reports. Pure and deterministic: the treasury is part of the state of shard 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from schemas.grants import Line

LEAN = 0.05
"""Shares of busy shards are moved only when one is off by more than this part of the capacity: each move costs messages."""


class Account(msgspec.Struct, array_like=True):
    """One resource of one shard, as the treasury knows it."""

    held: int = 0
    want: int = 0
    open: list[tuple[int, int]] = []
    """Grants it may obey: the one it said it obeys, and all that are newer; (number, units), oldest first."""

    @property
    def granted(self) -> int:
        """Units of the newest grant."""
        return self.open[-1][1] if self.open else 0

    @property
    def bound(self) -> int:
        """Units it can hold at most from here on, whichever of these grants it obeys."""
        return max([self.held, *(units for _, units in self.open)])


class Treasury(msgspec.Struct):
    """All accounts, and how far each shard has reported."""

    number: int = 0
    """The newest grant."""
    reported: list[tuple[int, int]] = []
    """By shard: (epoch, seq) of the newest report."""
    weights: list[float] = []
    accepted: list[int] = []
    accounts: dict[str, list[Account]] = {}
    capacity: dict[str, int] = {}
    """As of the newest grant."""

    def open(self, shards: int) -> None:
        """Make room for that many shards."""
        while len(self.reported) < shards:
            self.reported.append((0, 0))
            self.weights.append(0.0)
            self.accepted.append(0)
        for accounts in self.accounts.values():
            while len(accounts) < shards:
                accounts.append(Account())

    def of(self, resource: str) -> list[Account]:
        """The accounts of a resource, by shard."""
        found = self.accounts.get(resource)
        if found is None:
            found = self.accounts[resource] = [Account() for _ in self.reported]
        return found


def take_report(
    treasury: Treasury,
    shard: int,
    mark: tuple[int, int],
    obeys: int,
    lines: Mapping[str, Line],
    *,
    weight: float,
    accepted: int,
) -> bool:
    """Take a report in; False if it is no news."""
    if not 0 <= shard < len(treasury.reported) or mark <= treasury.reported[shard]:
        return False
    treasury.reported[shard] = mark
    treasury.weights[shard] = weight
    treasury.accepted[shard] = max(accepted, treasury.accepted[shard])
    for resource in sorted(treasury.accounts.keys() | lines.keys()):
        account = treasury.of(resource)[shard]
        line = lines.get(resource, Line())
        account.held, account.want = line.held, line.want
        while len(account.open) > 1 and account.open[1][0] <= obeys:
            account.open.pop(0)
    return True


def plan(treasury: Treasury, capacity: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """New grants by resource and shard; empty if what is granted may stay as it is."""
    changed: dict[str, tuple[int, ...]] = {}
    for resource in sorted(capacity):
        accounts = treasury.of(resource)
        units = _resource(accounts, treasury.weights, capacity[resource], treasury.capacity.get(resource))
        if units is not None:
            changed[resource] = tuple(units)
    return changed


def grant(
    treasury: Treasury, changed: Mapping[str, tuple[int, ...]], capacity: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Enter these grants under the next number; returns all grants that hold from it on."""
    treasury.number += 1
    for resource, units in changed.items():
        for account, amount in zip(treasury.of(resource), units, strict=True):
            if amount != account.granted or not account.open:
                account.open.append((treasury.number, amount))
    treasury.capacity = dict(capacity)
    return {
        resource: tuple(account.granted for account in accounts)
        for resource, accounts in sorted(treasury.accounts.items())
    }


def _resource(
    accounts: Sequence[Account], weights: Sequence[float], capacity: int, before: int | None
) -> list[int] | None:
    granted = [account.granted for account in accounts]
    short = any(account.want > account.granted for account in accounts)
    if before == capacity and not short:
        return None
    target = shares(capacity, [account.want for account in accounts], weights)
    off = max(abs(wanted - now) for wanted, now in zip(target, granted, strict=True))
    idle = any(account.granted > account.want for account in accounts)
    if before == capacity and not idle and sum(granted) >= capacity and off <= max(1.0, LEAN * capacity):
        return None
    units = [min(now, wanted) for now, wanted in zip(granted, target, strict=True)]
    free = capacity - sum(account.bound for account in accounts)
    # Up to its bound a shard may be raised for nothing: it counts as holding that much anyway.
    for index, account in enumerate(accounts):
        units[index] = max(units[index], min(target[index], account.bound))
    missing = [wanted - now for wanted, now in zip(target, units, strict=True)]
    if free > 0:
        for index, more in enumerate(apportion(min(free, sum(missing)), missing, missing)):
            units[index] += more
    return None if units == granted else units


def shares(capacity: int, wants: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Units by shard: in proportion to the weights, none more than it wants while another wants more; the rest evenly.

    What nobody wants is given out too, so that a shard that wakes up has something to begin with.
    """
    given = apportion(min(capacity, sum(wants)), weights, wants)
    rest = capacity - sum(given)
    if rest > 0:
        even = apportion(rest, [1.0] * len(given), [rest] * len(given))
        given = [units + more for units, more in zip(given, even, strict=True)]
    return given


def apportion(units: int, weights: Sequence[float], limits: Sequence[int]) -> list[int]:
    """`units` whole ones in proportion to the weights, each at most its limit (largest remainder, ties to the lower index).

    Weights of which none counts are taken as equal. All units are given out if the limits allow it.
    """
    given = [0] * len(weights)
    left = max(0, min(units, sum(limits)))
    while left > 0:
        open_ = [index for index, limit in enumerate(limits) if given[index] < limit]
        counted = [max(0.0, weights[index]) for index in open_]
        if sum(counted) <= 0.0:
            counted = [1.0] * len(open_)
        total = sum(counted)
        exact = [left * weight / total for weight in counted]
        round_ = [
            min(int(part), limits[index] - given[index]) for part, index in zip(exact, open_, strict=True)
        ]
        if sum(round_) == 0:
            order = sorted(
                range(len(open_)), key=lambda at: (int(exact[at]) - exact[at], -counted[at], open_[at])
            )
            for at in order[:left]:
                if counted[at] > 0.0 or sum(counted) <= 0.0:
                    round_[at] = 1
        for index, more in zip(open_, round_, strict=True):
            given[index] += more
        left -= sum(round_)
    return given
