"""Replay. Invariant: the log alone, folded to where the projection stands, gives the projection byte for byte."""

from __future__ import annotations

import msgspec

from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies
from services.scheduler.recovery import Recovery
from services.scheduler.snapshot import snapshot
from services.scheduler.store import BOOKKEEPING, Store

SHOWN = 20
WIDTH = 80
"""Characters of a value that are shown."""


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay."""

    equal: bool
    seq: int
    epoch: int
    entries: int
    """Journal entries that were folded."""
    tasks: int
    submitted: int
    terminal: int
    live: int
    differences: tuple[str, ...] = ()
    """Fields that differ, at most 20."""
    violations: tuple[str, ...] = ()
    """Invariants the replayed state breaks."""
    shards: int = 1


async def replay(kafka: str, redis: str, prefix: str, policies: Policies) -> ReplayReport:
    """Rebuild the state of every shard from the log, up to the batch that Redis holds, and compare. Changes nothing.

    Raises:
        Unavailable: the broker or Redis does not answer, or the log no longer holds its beginning.
    """
    reports = [
        await _shard(kafka, redis, prefix, msgspec.structs.replace(policies, shard=shard))
        for shard in range(policies.shards)
    ]
    return reports[0] if len(reports) == 1 else _joined(reports)


def _joined(reports: list[ReplayReport]) -> ReplayReport:
    named = [(f"shard {shard}: ", report) for shard, report in enumerate(reports)]
    return ReplayReport(
        equal=all(report.equal for report in reports),
        seq=sum(report.seq for report in reports),
        epoch=max(report.epoch for report in reports),
        entries=sum(report.entries for report in reports),
        tasks=sum(report.tasks for report in reports),
        submitted=sum(report.submitted for report in reports),
        terminal=sum(report.terminal for report in reports),
        live=sum(report.live for report in reports),
        differences=tuple(where + line for where, report in named for line in report.differences)[:SHOWN],
        violations=tuple(where + line for where, report in named for line in report.violations),
        shards=len(reports),
    )


async def _shard(kafka: str, redis: str, prefix: str, policies: Policies) -> ReplayReport:
    store = Store(redis, prefix, shard=policies.shard, shards=policies.shards)
    try:
        stored = await store.load()
    finally:
        await store.close()
    recovery = Recovery(kafka, prefix, policies)
    epoch, _, seq = stored.get("mark", b"0:0").decode().partition(":")
    try:
        await recovery.start()
        await recovery.follow(until=(int(epoch), int(seq)) if stored else None)
    finally:
        await recovery.stop()
    state = recovery.state
    replayed = snapshot(state)
    held = {name: value for name, value in stored.items() if name not in BOOKKEEPING}
    differences = []
    for name in sorted(replayed.keys() | held.keys()):
        if name not in held:
            differences.append(f"{name}: in the log, not in Redis")
        elif name not in replayed:
            differences.append(f"{name}: in Redis, not in the log")
        elif replayed[name] != held[name]:
            differences.append(f"{name}: differs{_where(replayed[name], held[name])}")
    violations = tuple(invariant(state))
    return ReplayReport(
        equal=not differences and not violations,
        seq=state.meta.seq,
        epoch=state.meta.epoch,
        entries=recovery.folded,
        tasks=state.meta.submitted,
        submitted=state.meta.submitted,
        terminal=sum(state.meta.ended.values()),
        live=len(state.live),
        differences=tuple(differences[:SHOWN]),
        violations=violations,
    )


def _where(replayed: bytes, held: bytes) -> str:
    """The fields of a record that differ, with what the log and what Redis says."""
    one, other = msgspec.msgpack.decode(replayed), msgspec.msgpack.decode(held)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return ""
    one, other = one.get("meta", one), other.get("meta", other)
    parts = [
        f"{key} is {str(one.get(key))[:WIDTH]} in the log, {str(other.get(key))[:WIDTH]} in Redis"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]
    return f" ({'; '.join(parts)})" if parts else ""
