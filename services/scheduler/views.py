"""The stored states of all shards. Invariant: a question reads what is there and changes nothing.

With one shard an answer is exactly the shard's own. With more, sums are sums, a domain is told by its owner, and figures of
which a sum says nothing (times, versions, epochs) are the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.runtime.errors import Unavailable
from services.runtime.settings import Process
from services.scheduler.policies import Policies
from services.scheduler.settings import redis_of
from services.scheduler.snapshot import SnapshotError, restore
from services.scheduler.state import State
from services.scheduler.store import BOOKKEEPING, Store

LARGEST = ("version", "epoch", "waited", "mix_", "seq", "redis_lag")
"""Figures, by how their names begin, of which the largest is told."""


async def stored(process: Process, policies: Policies) -> list[tuple[Policies, State]]:
    """What Redis holds of each shard.

    Raises:
        Unavailable: Redis does not answer, or holds no state that this version can read.
    """
    found = []
    for shard in range(policies.shards):
        store = Store(redis_of(process), process.prefix, shard=shard, shards=policies.shards)
        try:
            fields = await store.load(torn=True)
        finally:
            await store.close()
        if not fields:
            which = f"of shard {shard} " if policies.shards > 1 else ""
            raise Unavailable(
                f"Redis holds no scheduler state {which}for this installation; does the scheduler run?"
            )
        if int(fields.get("shards", b"1")) != policies.shards:
            raise Unavailable(
                f"this installation has {int(fields['shards'])} shards, not {policies.shards}; set scheduler.shards to that"
            )
        try:
            state = restore({name: value for name, value in fields.items() if name not in BOOKKEEPING})
        except SnapshotError as error:
            raise Unavailable(f"{error}; the running scheduler is of another version") from error
        found.append((msgspec.structs.replace(policies, shard=shard), state))
    return found


def holding(states: Sequence[tuple[Policies, State]], task_id: str) -> tuple[Policies, State]:
    """The shard that knows a task; the first one if none does."""
    return next(
        (
            pair
            for pair in states
            if task_id in pair[1].live or task_id in pair[1].ended or task_id in pair[1].pending
        ),
        states[0],
    )


def joined(documents: Sequence[dict[str, Any]], states: Sequence[tuple[Policies, State]]) -> dict[str, Any]:
    """One answer of `ps` from that of each shard."""
    if len(documents) == 1:
        return documents[0]
    figures: dict[str, float] = {}
    for document in documents:
        for name, value in document["figures"].items():
            before = figures.get(name, 0.0)
            figures[name] = max(before, value) if name.startswith(LARGEST) else before + value
    domains: dict[str, Any] = {}
    for document, (policies, _) in zip(documents, states, strict=True):
        domains |= {name: row for name, row in document["domains"].items() if policies.owns(name)}
    rest = {key: value for key, value in documents[0].items() if key not in ("figures", "domains", "leases")}
    return {
        "figures": figures,
        "domains": dict(sorted(domains.items())),
        "leases": [lease for document in documents for lease in document["leases"]],
        **rest,
        "shards": [
            {
                "shard": policies.shard,
                "epoch": state.meta.epoch,
                "seq": state.meta.seq,
                "live": len(state.live),
                "terminal": sum(state.meta.ended.values()),
                "grant": state.meta.grant,
                **state.meta.credits,
            }
            for policies, state in states
        ],
    }
