"""A shard's part in the sharing of slots and tickets. Invariant: with one shard nothing here changes or says anything.

Shard 0 keeps the treasury beside its own tasks. Everything is an event: a shard reports what it holds and could use, the
treasury answers all shards with one grant, and both are inputs of the fold like any other.
"""

from __future__ import annotations

from schemas.grants import CreditsGranted, Line, ShardReported
from services.scheduler.effects import Effect, Tell
from services.scheduler.order import weight_of
from services.scheduler.policies import Policies
from services.scheduler.quotas import gives_credits, room
from services.scheduler.state import State
from services.scheduler.treasury import Treasury, grant, plan, take_report

TOPIC = "grants"
TRAIN = "train"
PAUSE_S = 0.05
"""Least time between two reports of a shard, and between two grants."""


def slots_of(pool: str) -> str:
    """Name of a pool's slots as a resource."""
    return f"slots:{pool}"


def obey(state: State, policies: Policies, event: CreditsGranted) -> list[Effect]:
    """Take a grant in; older ones than the one that is obeyed are no news."""
    meta = state.meta
    if event.number <= meta.grant:
        state.count("old_grant")
        return []
    meta.grant = event.number
    meta.credits = {
        name: units[policies.shard] for name, units in event.credits.items() if policies.shard < len(units)
    }
    return []


def hear(state: State, policies: Policies, event: ShardReported) -> list[Effect]:
    """Take a report into the treasury, where this shard keeps it."""
    if policies.shard != 0:
        return []
    treasury = _treasury(state, policies)
    if not take_report(
        treasury,
        event.shard,
        (event.epoch, event.seq),
        event.obeys,
        event.lines,
        weight=event.weight,
        accepted=event.accepted,
    ):
        state.count("old_report")
    return []


def owing(state: State, policies: Policies, now: float) -> bool:
    """Whether a report is due that had to wait."""
    return policies.shards > 1 and state.meta.owes and now - state.meta.told_at >= PAUSE_S


def settle(state: State, policies: Policies, now: float) -> list[Effect]:
    """At the end of a batch: what this shard has to report, and what the treasury grants."""
    if policies.shards == 1:
        return []
    told: list[Effect] = []
    report = _report(state, policies, now)
    if report is not None:
        told.append(Tell(event=report))
    if policies.shard == 0:
        told += _grant(state, policies, now)
    return told


def _report(state: State, policies: Policies, now: float) -> ShardReported | None:
    meta = state.meta
    news = meta.grant != meta.told_grant
    if not news and now - meta.told_at < PAUSE_S:
        meta.owes = True
        return None
    lines, weight = _lines(state, policies)
    meta.owes = False
    if not news and lines == meta.told and weight == meta.told_weight:
        return None
    meta.told, meta.told_weight, meta.told_grant, meta.told_at = lines, weight, meta.grant, now
    return ShardReported(
        shard=policies.shard,
        epoch=meta.epoch,
        seq=meta.seq,
        obeys=meta.grant,
        lines=lines,
        weight=weight,
        accepted=meta.accepted,
    )


def _lines(state: State, policies: Policies) -> tuple[dict[str, Line], float]:
    meta = state.meta
    used = meta.accepted + len(state.active)
    tickets = max(0, meta.credits.get(TRAIN, 0) - used)
    ready: dict[str, dict[str, int]] = {}
    busy: set[str] = {domain for domain, leases in state.held.items() if leases}
    for (pool, purpose), lanes in sorted(state.lanes.items()):
        count = 0
        for domain, lane in lanes.items():
            if lane.ready:
                able = min(lane.ready, room(state, policies, domain))
                count += int(able)
                if able:
                    busy.add(domain)
        ready.setdefault(pool, {})[purpose] = count
    train = 0 if meta.final else sum(by.get("train", 0) for by in ready.values())
    lines = {TRAIN: Line(held=used, want=used + train)}
    pools = ready.keys() | {pool for pool, leases in state.occupied.items() if leases}
    for pool in sorted(pools):
        leases = state.occupied.get(pool)
        held = 0 if leases is None else leases.slots
        by = ready.get(pool, {})
        want = held + by.get("eval", 0) + min(by.get("train", 0), 0 if meta.final else tickets)
        if want:  # an empty lane must count as no lane: a restored state has none
            lines[slots_of(pool)] = Line(held=held, want=want)
    # A float from the beginning: an empty sum would be the integer 0, which is stored otherwise.
    return lines, sum((weight_of(state, policies, domain) for domain in sorted(busy)), 0.0)


def _grant(state: State, policies: Policies, now: float) -> list[Effect]:
    meta = state.meta
    treasury = _treasury(state, policies)
    capacity = _capacity(state, policies, treasury, now)
    shrunk = any(units < treasury.capacity.get(name, 0) for name, units in capacity.items())
    if not shrunk and now - meta.granted_at < PAUSE_S:
        meta.owes = True
        return []
    changed = plan(treasury, capacity)
    if not changed:
        return []
    meta.granted_at = now
    credits_ = grant(treasury, changed, capacity)
    return [Tell(event=CreditsGranted(number=treasury.number, credits=credits_))]


def _capacity(state: State, policies: Policies, treasury: Treasury, now: float) -> dict[str, int]:
    """What there is: slots of live workers by pool, and training groups that staleness allows over the whole run."""
    pools: dict[str, int] = {
        name.removeprefix("slots:"): 0 for name in treasury.accounts if name.startswith("slots:")
    }
    for _, worker in sorted(state.workers.items()):
        if gives_credits(worker, policies, now):
            pools[worker.pool] = pools.get(worker.pool, 0) + worker.slots
    capacity = {slots_of(pool): slots for pool, slots in sorted(pools.items())}
    meta = state.meta
    # The trainer has taken at least this many groups, whatever shards have counted.
    uncounted = max(0, meta.version * policies.groups_per_step - sum(treasury.accepted))
    capacity[TRAIN] = max(0, (policies.eta + meta.version + 1) * policies.groups_per_step - uncounted)
    return capacity


def _treasury(state: State, policies: Policies) -> Treasury:
    meta = state.meta
    if meta.treasury is None:
        meta.treasury = Treasury()
    meta.treasury.open(policies.shards)
    return meta.treasury
