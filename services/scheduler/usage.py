"""What a shard uses, could use, and how far it has come, as the treasury is told. Invariant: read from the state alone.

A domain counts as one that could use more while it has a ready task that neither a pause nor its quota holds back. What the
others hold is told apart, so that a domain that wants nothing more weighs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemas.grants import Line, Mixing, Standing
from services.scheduler import mix
from services.scheduler.classes import due
from services.scheduler.order import decayed, rank, weight_of
from services.scheduler.policies import Policies
from services.scheduler.quotas import Free, room, verifiable_by_all
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.state import State, under_way
from services.scheduler.treasury import CHEAPEST_S, TRAIN

VERIFY = "verify"
NO_LIMIT = float("inf")


def slots_of(pool: str) -> str:
    """Name of a pool's slots as a resource."""
    return f"slots:{pool}"


def tokens_of(pool: str) -> str:
    """Name of a pool's tokens as a resource."""
    return f"tokens:{pool}"


class Told(NamedTuple):
    """The figures of one report."""

    lines: dict[str, Line]
    standings: dict[str, Standing]


class _Tally:
    """Units of one resource."""

    __slots__ = ("aside", "first", "held", "most", "need", "place", "ready")

    def __init__(self) -> None:
        self.held = self.first = self.aside = self.need = self.most = 0
        self.place: tuple[int, int, float, str] | None = None
        """Of the domain whose task would go first: `need` is that task's, so that only who is behind is waited for."""
        self.ready = {"eval": 0, "train": 0}

    def line(self, most_train: float) -> Line:
        train = int(min(self.ready["train"], most_train))
        return Line(
            held=self.held,
            want=self.held + self.ready["eval"] + train,
            first=self.first + self.ready["eval"],
            aside=self.aside,
            need=self.need,
        )


def told(state: State, policies: Policies, now: float) -> Told:
    """What there is to report now; resources of which nothing is held or wanted are left out."""
    # Of pools with leases too: a restored state has no lanes where nothing is ready.
    pools = {pool for pool, _ in state.lanes} | state.occupied.keys()
    frees = {pool: Free(state, policies, pool, now) for pool in sorted(pools)}
    tallies: dict[str, _Tally] = {}
    backlog: dict[str, dict[str, float]] = {"eval": {}, "train": {}}
    tasks = _ready(state, policies, frees, tallies, backlog)
    for entry in under_way(state):
        if entry.state in HELD:
            for name, units in _units(entry.pool, entry, 0, frees[entry.pool]):
                _hold(tallies, name, units, entry.purpose, more=entry.domain in backlog[entry.purpose])
    if state.members:
        tallies.setdefault(VERIFY, _Tally()).held += state.members
    used = state.meta.accepted + state.training
    tasks = 0 if state.meta.final else tasks
    tickets = max(0, state.meta.credits.get(TRAIN, 0) - used)
    lines = {TRAIN: Line(held=used, want=used + tasks)}
    for name, tally in sorted(tallies.items()):
        # No more than there are tickets for; an attempt takes at most `most` units.
        line = tally.line(0 if state.meta.final else tickets * max(1, tally.most))
        if line.want:  # an empty lane must count as no lane: a restored state has none
            lines[name] = line
    return Told(lines, _standings(state, policies, backlog, now))


def _ready(
    state: State,
    policies: Policies,
    frees: Mapping[str, Free],
    tallies: dict[str, _Tally],
    backlog: Mapping[str, dict[str, float]],
) -> int:
    """Enter what waits and may go as far as its domain and the workers that are here decide; the training tasks among it."""
    tasks = 0
    for (pool, purpose), board in sorted(state.lanes.items()):
        if pool in state.meta.drained:
            continue
        turn = 1 if purpose == "eval" else 0 if due(state, policies, pool, 1) else 2
        for domain, lane in board.items():
            entry = lane.first() if lane.ready else None
            if entry is None or entry.slots > frees[pool].largest:
                continue
            able = int(min(lane.ready, room(state, policies, domain) // entry.slots))
            if not able:
                continue
            backlog[purpose][domain] = max(CHEAPEST_S, entry.estimate_s)
            tasks += able if purpose == "train" else 0
            for name, units in _units(pool, entry, entry.group_size, frees[pool]):
                tally = tallies.setdefault(name, _Tally())
                tally.ready[purpose] += able * units
                tally.most = max(tally.most, units)
                record = state.domains.get(domain)
                place = (
                    turn,
                    *rank(record, policies.of(domain), purpose, policies.half_life_s),
                    domain,
                )
                if tally.place is None or place < tally.place:
                    tally.place, tally.need = place, units
    # A task that its pool is held for goes first whatever its rank is by now, and nothing else goes before it.
    for pool, name in sorted(state.meta.reserved.items()):
        held = state.live.get(name)
        if held is not None and held.state == "ready" and held.pool == pool and pool in frees:
            for resource, units in _units(pool, held, held.group_size, frees[pool]):
                tallies.setdefault(resource, _Tally()).need = units
    return tasks


def _units(pool: str, entry: TaskEntry, members: int, free: Free) -> list[tuple[str, int]]:
    units = [(slots_of(pool), entry.slots)]
    if free.all_tokens != NO_LIMIT:
        # One that needs more than there are is waited for until it has them all.
        units.append((tokens_of(pool), min(entry.tokens, int(free.all_tokens))))
    if members:
        units.append((VERIFY, members))
    return units


def _hold(tallies: dict[str, _Tally], name: str, units: int, purpose: str, *, more: bool) -> None:
    tally = tallies.setdefault(name, _Tally())
    tally.held += units
    if purpose == "eval":
        tally.first += units
    elif not more:
        tally.aside += units


def _standings(
    state: State, policies: Policies, backlog: Mapping[str, Mapping[str, float]], now: float
) -> dict[str, Standing]:
    found = {}
    for purpose, costs in backlog.items():
        weight = usage = units = 0.0
        for domain in sorted(costs):
            record = state.domains.get(domain)
            share = None if record is None else record.shares.get(purpose)
            own = weight_of(state, policies, domain)
            weight += own
            usage += decayed(share, now, policies.half_life_s)
            units += own / costs[domain]
        if weight:
            # Service is dealt out by weight, so cheap tasks make more of the units: the mean is the harmonic one.
            found[purpose] = Standing(weight=weight, usage=usage, cost_s=weight / units)
    return found


def capacity(
    state: State, policies: Policies, known: Mapping[str, object], accepted: int, now: float
) -> dict[str, int]:
    """What there is for all shards; what knows no limit is left out. `known`: resources told of so far.

    Slots and tokens of live workers by pool, samples that verifiers take, and training groups that staleness allows over the
    whole run, of which shards have counted `accepted`.
    """
    pools = {name.partition(":")[2] for name in known if ":" in name}
    pools |= {worker.pool for worker in state.workers.values() if worker.service == "sampler"}
    found = {}
    for pool in sorted(pools):
        free = Free(state, policies, pool, now)
        found[slots_of(pool)] = free.there
        if free.all_tokens != NO_LIMIT:
            found[tokens_of(pool)] = int(free.all_tokens)
    verifiable = verifiable_by_all(state, policies, now)
    if verifiable is not None:
        found[VERIFY] = verifiable
    meta = state.meta
    # The trainer has taken at least this many groups, whatever shards have counted.
    uncounted = max(0, meta.version * policies.groups_per_step - accepted)
    found[TRAIN] = max(0, (policies.eta + meta.version + 1) * policies.groups_per_step - uncounted)
    return found


def evidence(state: State, policies: Policies) -> dict[str, Mixing]:
    """What mixed sampling knows of the domains that may train now."""
    return {
        name: Mixing(
            groups=known.groups,
            mean=known.mean,
            variance=known.variance,
            informative=known.informative,
            cost_s=known.cost_s,
        )
        for name, known in mix.known_of(state, policies).items()
    }
