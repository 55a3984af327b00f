"""Replay. Invariant: the log alone, folded to where the projection stands, gives the projection byte for byte."""

from __future__ import annotations

import msgspec

from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies
from services.scheduler.recovery import Recovery
from services.scheduler.snapshot import snapshot
from services.scheduler.store import BOOKKEEPING, Store

SHOWN = 20


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


async def replay(kafka: str, redis: str, prefix: str, policies: Policies) -> ReplayReport:
    """Rebuild the state from the log, up to the batch that Redis holds, and compare. Changes nothing.

    Raises:
        Unavailable: the broker or Redis does not answer, or the log no longer holds its beginning.
    """
    store = Store(redis, prefix)
    try:
        stored = await store.load()
    finally:
        await store.close()
    recovery = Recovery(kafka, prefix, policies)
    epoch, _, seq = stored.get("mark", b"0:0").decode().partition(":")
    try:
        await recovery.start({})
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
            differences.append(f"{name}: differs")
    violations = tuple(invariant(state))
    return ReplayReport(
        equal=not differences and not violations,
        seq=state.meta.seq,
        epoch=state.meta.epoch,
        entries=recovery.folded,
        tasks=len(state.live) + len(state.ended),
        submitted=state.meta.submitted,
        terminal=len(state.ended),
        live=len(state.live),
        differences=tuple(differences[:SHOWN]),
        violations=violations,
    )
