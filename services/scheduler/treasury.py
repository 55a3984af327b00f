"""Sharing what the shards have in common. Invariant: what all shards may hold is never more than there is.

A shard obeys the newest grant it has seen and takes a new unit only while it holds fewer than that grant. So after a report
that says "I hold h and obey grant n" it can never hold more than max(h, every grant numbered n or later), whatever becomes of
the messages between: lost, doubled, late or out of order. The sum of these bounds is kept within the capacity; a unit that one
shard is to get from another is granted when the other's report shows that it can no longer use it. A shard that is dead keeps
its bound until its successor reports. Pure and deterministic: the treasury is part of the state of shard 0.

Who is to get what: evaluation before training, which keeps its share of what there is (`classes`), and each among the shards
so that their virtual times level (`levels`). Slots,
tokens and samples are levels, held for a while; training tickets are counted, and each is spent once. A task at the head of a
queue that needs more at once than its shard's share is waited for, one shard at a time, when its domain is furthest behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from schemas.grants import Line, Mixing, Standing
from services.scheduler.levels import Side, kept, share_out
from services.scheduler.powers import exp2

TRAIN = "train"
"""The resource that is counted."""
LEAN = 0.05
"""Shares are moved at once when one is off by more than this part of what is shared; each move costs messages."""
EASE_S = 0.25
"""Least time between two moves that only even out small differences."""
HORIZON = 4.0
"""Within so many times what a task takes the shares of slots make up for what shards are ahead or behind: a slot moves when its
lease ends, and what is corrected faster than that swings."""
LEAST_HORIZON_S = 1.0
CHEAPEST_S = 1e-3


class Account(msgspec.Struct, array_like=True):
    """One resource of one shard, as the treasury knows it; see `schemas.grants.Line`."""

    held: int = 0
    want: int = 0
    open: list[tuple[int, int]] = []
    """Grants it may obey: the one it said it obeys, and all that are newer; (number, units), oldest first."""
    first: int = 0
    aside: int = 0
    need: int = 0

    @property
    def granted(self) -> int:
        """Units of the newest grant."""
        return self.open[-1][1] if self.open else 0

    @property
    def bound(self) -> int:
        """Units it can hold at most from here on, whichever of these grants it obeys."""
        return max([self.held, *(units for _, units in self.open)])


class Member(msgspec.Struct):
    """One shard, by its newest report."""

    mark: tuple[int, int] = (0, 0)
    """(epoch, seq) of the report."""
    at: float = 0.0
    accepted: int = 0
    decisions: int = 0
    standings: dict[str, Standing] = {}
    mixing: dict[str, Mixing] = {}

    def side(self, purpose: str, limit: int, now: float, half_life_s: float, seconds: float) -> Side:
        """Its part in a sharing."""
        standing = self.standings.get(purpose)
        if standing is None or standing.weight <= 0.0:
            return Side(max(0, limit), 0.0, 0.0, seconds)
        usage = standing.usage * exp2(-max(0.0, now - self.at) / half_life_s) if standing.usage else 0.0
        return Side(max(0, limit), standing.weight, usage / standing.weight, seconds)


class Treasury(msgspec.Struct):
    """All accounts and members."""

    number: int = 0
    """The newest grant."""
    members: list[Member] = []
    accounts: dict[str, list[Account]] = {}
    capacity: dict[str, int] = {}
    """As of the newest grant."""
    awaited: dict[str, int] = {}
    """Resource -> the shard whose next task needs more than its share and is waited for."""
    eased_at: float = 0.0
    mixed: int = 0
    """Decisions of all shards when the factors of mixed sampling were set last."""
    factors: dict[str, float] = {}
    """Those factors, by domain."""

    def open(self, shards: int) -> None:
        """Make room for that many shards."""
        while len(self.members) < shards:
            self.members.append(Member())
        for accounts in self.accounts.values():
            while len(accounts) < shards:
                accounts.append(Account())

    def of(self, resource: str) -> list[Account]:
        """The accounts of a resource, by shard."""
        found = self.accounts.get(resource)
        if found is None:
            found = self.accounts[resource] = [Account() for _ in self.members]
        return found

    @property
    def accepted(self) -> int:
        """Training groups that all shards have counted."""
        return sum(member.accepted for member in self.members)

    @property
    def decisions(self) -> int:
        """Dispatches of all shards."""
        return sum(member.decisions for member in self.members)


def take_report(
    treasury: Treasury,
    shard: int,
    mark: tuple[int, int],
    obeys: int,
    lines: Mapping[str, Line],
    *,
    standings: Mapping[str, Standing],
    accepted: int = 0,
    decisions: int = 0,
    at: float = 0.0,
    mixing: Mapping[str, Mixing] | None = None,
) -> bool:
    """Take a report in; False if it is no news."""
    if not 0 <= shard < len(treasury.members) or mark <= treasury.members[shard].mark:
        return False
    member = treasury.members[shard]
    member.mark, member.at = mark, at
    member.standings = dict(standings)
    member.accepted = max(accepted, member.accepted)
    member.decisions = max(decisions, member.decisions)
    if mixing is not None:
        member.mixing = dict(mixing)
    for resource in sorted(treasury.accounts.keys() | lines.keys()):
        account = treasury.of(resource)[shard]
        line = lines.get(resource, Line())
        account.held, account.want, account.first = line.held, line.want, min(line.first, line.want)
        account.aside, account.need = min(line.aside, line.want - account.first), line.need
        while len(account.open) > 1 and account.open[1][0] <= obeys:
            account.open.pop(0)
    return True


def plan(
    treasury: Treasury,
    capacity: Mapping[str, int],
    *,
    now: float = 0.0,
    half_life_s: float = 300.0,
    train_share: float = 0.1,
) -> dict[str, tuple[int, ...]]:
    """New grants by resource and shard; empty if what is granted may stay as it is."""
    changed: dict[str, tuple[int, ...]] = {}
    eased = False
    for resource in sorted(capacity):
        accounts = treasury.of(resource)
        whole, before = capacity[resource], treasury.capacity.get(resource)
        granted = [account.granted for account in accounts]
        if before == whole and not any(account.want > account.granted for account in accounts):
            continue
        target = _target(treasury, resource, whole, now, half_life_s, train_share)
        if before == whole and not _urgent(accounts, target, whole, counted=resource == TRAIN):
            if target == granted or now - treasury.eased_at < EASE_S:
                continue
            eased = True
        units = _attainable(accounts, target, whole)
        if units != granted:
            changed[resource] = tuple(units)
    if eased:
        treasury.eased_at = now
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


def _urgent(accounts: Sequence[Account], target: Sequence[int], capacity: int, *, counted: bool) -> bool:
    """Whether what is granted is to be moved at once: units lie idle, or a share is far off."""
    granted = [account.granted for account in accounts]
    if sum(granted) < capacity or any(account.granted > account.want for account in accounts):
        return True
    shared = capacity - sum(account.held for account in accounts) if counted else capacity
    off = max(abs(wanted - now) for wanted, now in zip(target, granted, strict=True))
    return off > max(1.0, LEAN * shared)


def _attainable(accounts: Sequence[Account], target: Sequence[int], capacity: int) -> list[int]:
    """As near to the target as the bounds of all allow."""
    units = [min(account.granted, wanted) for account, wanted in zip(accounts, target, strict=True)]
    free = capacity - sum(account.bound for account in accounts)
    # Up to its bound a shard may be raised for nothing: it counts as holding that much anyway.
    for index, account in enumerate(accounts):
        units[index] = max(units[index], min(target[index], account.bound))
    missing = [wanted - now for wanted, now in zip(target, units, strict=True)]
    if free > 0:
        for index, more in enumerate(
            share_out(min(free, sum(missing)), [Side(left, float(left), 0.0, 1.0) for left in missing])
        ):
            units[index] += more
    return units


def _target(
    treasury: Treasury, resource: str, capacity: int, now: float, half_life_s: float, train_share: float
) -> list[int]:
    """Units by shard as they should be."""
    accounts = treasury.of(resource)

    def shared(units: int, purpose: str, limits: Sequence[int], horizon_s: float | None) -> list[int]:
        sides = []
        for member, limit in zip(treasury.members, limits, strict=True):
            standing = member.standings.get(purpose, Standing())
            seconds = max(CHEAPEST_S, standing.cost_s) if horizon_s is None else horizon_s
            sides.append(member.side(purpose, limit, now, half_life_s, seconds))
        return share_out(units, sides)

    if resource == TRAIN:
        given = [account.held for account in accounts]
        limits = [account.want - account.held for account in accounts]
        more = shared(max(0, capacity - sum(given)), TRAIN, limits, None)
        return _even(capacity, [now_ + new for now_, new in zip(given, more, strict=True)])

    behind = _service(treasury, TRAIN, now, half_life_s) * (1.0 - train_share) < (
        _service(treasury, "eval", now, half_life_s) * train_share
    )
    mine = kept(
        capacity, train_share, sum(account.want - account.first for account in accounts), behind=behind
    )
    turn = TRAIN if behind and mine else "eval"

    def levelled(units: int, chosen: Sequence[bool]) -> list[int]:
        asides = [account.aside if of else 0 for account, of in zip(accounts, chosen, strict=True)]
        limits = [
            account.want - account.first - account.aside if of else 0
            for account, of in zip(accounts, chosen, strict=True)
        ]
        firsts = shared(
            units - kept(units, train_share, sum(asides) + sum(limits), behind=behind),
            "eval",
            [account.first if of else 0 for account, of in zip(accounts, chosen, strict=True)],
            _horizon(treasury, "eval"),
        )
        rest = max(0, units - sum(firsts) - sum(asides))
        trains = shared(rest, TRAIN, limits, _horizon(treasury, TRAIN))
        return [sum(parts) for parts in zip(firsts, asides, trains, strict=True)]

    everybody = [True] * len(accounts)
    given = levelled(capacity, everybody)
    held = _awaited(treasury, resource, given, capacity, now, half_life_s, turn)
    if held is not None:
        need = min(capacity, max(accounts[held].need, given[held]))
        given = levelled(capacity - need, [at != held for at in range(len(accounts))])
        given[held] = need
    return _even(capacity, given)


def _awaited(
    treasury: Treasury,
    resource: str,
    given: Sequence[int],
    capacity: int,
    now: float,
    half_life_s: float,
    turn: str,
) -> int | None:
    """The shard whose next task is waited for, because it needs more at once than the shard's share: until it has had it.

    Of those that can begin nothing, only who is furthest behind, in the class whose `turn` it is: whoever else were waited for
    could take from that one for ever what its share gives it.
    """
    accounts = treasury.of(resource)
    # The other resources of a pool go with the one that a shard was found short of first: two shards that each have what the
    # other needs would wait for ever.
    pool = resource.partition(":")[2]
    for other in sorted(treasury.awaited):
        if other != resource and pool and other.partition(":")[2] == pool:
            treasury.awaited.pop(resource, None)
            return treasury.awaited[other]
    # One unit is no more at once than a share: those left over go to who is furthest behind, in turn.
    hungry = [
        at
        for at, account in enumerate(accounts)
        if account.held < account.need and 1 < account.need <= min(capacity, account.want)
    ]
    held = treasury.awaited.pop(resource, None)
    if held not in hungry:
        places = {at: _place(treasury.members[at], turn, now, half_life_s) for at in hungry}
        held = min(hungry, key=lambda at: (places[at], at), default=None)
    if held is not None and given[held] >= accounts[held].need:
        held = None
    if held is not None:
        treasury.awaited[resource] = held
    return held


def _service(treasury: Treasury, purpose: str, now: float, half_life_s: float) -> float:
    """Decayed service seconds of a class, over all shards that could use more."""
    sides = [(member.side(purpose, 1, now, half_life_s, 1.0)) for member in treasury.members]
    return sum([side.virtual * side.weight for side in sides])


def _place(member: Member, turn: str, now: float, half_life_s: float) -> tuple[int, float]:
    """Place of a shard among those that wait: whoever has something of the class whose turn it is first, by virtual time."""
    for late, purpose in enumerate((turn, TRAIN if turn == "eval" else "eval")):
        if purpose in member.standings:
            return late, member.side(purpose, 1, now, half_life_s, 1.0).virtual
    return 2, 0.0


def _horizon(treasury: Treasury, purpose: str) -> float:
    """Seconds over which shares of a level make virtual times even."""
    standings = [member.standings.get(purpose, Standing()) for member in treasury.members]
    weight = sum([standing.weight for standing in standings])
    if weight <= 0.0:
        return LEAST_HORIZON_S
    cost = sum([standing.weight * standing.cost_s for standing in standings]) / weight
    return max(LEAST_HORIZON_S, HORIZON * cost)


def _even(capacity: int, given: list[int]) -> list[int]:
    """What nobody wants is given out too, evenly, so that a shard that wakes up has something to begin with."""
    rest = capacity - sum(given)
    if rest <= 0:
        return given
    even = share_out(rest, [Side(rest, 1.0, 0.0, 1.0) for _ in given])
    return [units + more for units, more in zip(given, even, strict=True)]
