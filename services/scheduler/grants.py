"""A shard's part in the sharing of slots and tickets. Invariant: with one shard nothing here changes or says anything.

Shard 0 keeps the treasury beside its own tasks. Everything is an event: a shard reports what it holds and could use, the
treasury answers all shards with one grant, and both are inputs of the fold like any other.
"""

from __future__ import annotations

import zlib

from schemas.grants import CreditsGranted, ShardReported
from services.scheduler import mix
from services.scheduler.effects import Effect, Tell
from services.scheduler.policies import Policies
from services.scheduler.records import Evidence
from services.scheduler.state import State
from services.scheduler.treasury import Treasury, grant, plan, take_report
from services.scheduler.usage import capacity, evidence, slots_of, told

__all__ = ["TOPIC", "hear", "obey", "owing", "settle", "slots_of"]

TOPIC = "grants"
PAUSE_S = 0.05
"""Least time between two reports of a shard, and between two grants."""
FRESH_S = 0.25
"""Least time between two reports that tell of nothing but service since."""


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
    mix.apply(state, {name: factor for name, factor in event.mix.items() if policies.owns(name)})
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
        standings=event.standings,
        accepted=event.accepted,
        decisions=event.decisions,
        at=event.at,
        mixing=event.mixing,
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
    out: list[Effect] = []
    report = _report(state, policies, now)
    if report is not None:
        out.append(Tell(event=report))
    if policies.shard == 0:
        out += _grant(state, policies, now)
    return out


def _report(state: State, policies: Policies, now: float) -> ShardReported | None:
    meta = state.meta
    news = meta.grant != meta.told_grant
    if not news and now - meta.told_at < PAUSE_S:
        meta.owes = True
        return None
    meta.owes = False
    lines, standings = told(state, policies, now)
    weight = sum([standings[purpose].weight for purpose in sorted(standings)], 0.0)
    mixing = None
    if mix.steers(policies):
        names = zlib.crc32("\n".join(mix.present(state, policies)).encode())
        since = meta.decisions - meta.told_mixing
        if names != meta.told_domains or since * 2 * policies.shards >= mix.pause(policies):
            mixing = evidence(state, policies)
            meta.told_domains, meta.told_mixing = names, meta.decisions
    if lines == meta.told and weight == meta.told_weight and not news and mixing is None:
        served = meta.decisions != meta.told_decisions
        if not served or now - meta.told_at < FRESH_S:
            return None
    meta.told, meta.told_weight, meta.told_grant, meta.told_at = lines, weight, meta.grant, now
    meta.told_decisions = meta.decisions
    return ShardReported(
        shard=policies.shard,
        epoch=meta.epoch,
        seq=meta.seq,
        obeys=meta.grant,
        lines=lines,
        weight=weight,
        accepted=meta.accepted,
        at=now,
        standings=standings,
        decisions=meta.decisions,
        mixing=mixing,
    )


def _grant(state: State, policies: Policies, now: float) -> list[Effect]:
    meta = state.meta
    treasury = _treasury(state, policies)
    there = capacity(state, policies, treasury.accounts, treasury.accepted, now)
    shrunk = any(units < treasury.capacity.get(name, 0) for name, units in there.items())
    if not shrunk and now - meta.granted_at < PAUSE_S:
        meta.owes = True
        return []
    changed = plan(
        treasury, there, now=now, half_life_s=policies.half_life_s, train_share=policies.train_share
    )
    factors = _factors(treasury, policies)
    if not changed and not factors:
        return []
    meta.granted_at = now
    credits_ = grant(treasury, changed, there)
    return [Tell(event=CreditsGranted(number=treasury.number, credits=credits_, mix=factors))]


def _factors(treasury: Treasury, policies: Policies) -> dict[str, float]:
    """Factors of mixed sampling that change, over the domains of all shards; nothing while it is not time."""
    if not mix.steers(policies) or treasury.decisions - treasury.mixed < mix.pause(policies):
        return {}
    treasury.mixed = treasury.decisions
    known = {
        name: Evidence(
            groups=seen.groups,
            mean=seen.mean,
            variance=seen.variance,
            informative=seen.informative,
            cost_s=seen.cost_s,
        )
        for member in treasury.members
        for name, seen in member.mixing.items()
    }
    new = {
        name: factor
        for name, factor in mix.factors(policies, dict(sorted(known.items()))).items()
        if mix.moves(factor, treasury.factors.get(name, 1.0))
    }
    treasury.factors |= new
    return new


def _treasury(state: State, policies: Policies) -> Treasury:
    meta = state.meta
    if meta.treasury is None:
        meta.treasury = Treasury()
    meta.treasury.open(policies.shards)
    return meta.treasury
