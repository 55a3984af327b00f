"""Whose doing the end of a worker was. Invariant: what is certain is charged to one task, what is not is shared and looked into.

A worker that ends takes all its groups along, and often one of them was the cause: it needed more memory than there was, say.
The others must not pay for it, and it must not go round for ever. So a loss that n groups share is 1/n of a loss for each, and
each is tried again with fewer others in its engine (`fewer`), which its assignment says and the sampler keeps. There the
innocent pass, and are free again; the guilty one ends alone before long. Then there is no doubt, and it is charged in full.

A sampler says which groups are in its engine before it begins one that is under suspicion, or any beside it. What it said then
is exact (`known`): whoever only waited there is out of the question. Where nothing is known for sure, all that were held share.
"""

from __future__ import annotations

import math

from schemas.heartbeats import WorkerHeartbeat
from services.scheduler.records import TaskEntry, Worker
from services.scheduler.state import State

WATCHED = 64
"""Company of a task that was lost with no worker in sight: next time its sampler says so before it begins."""
UNSEEN = 2
"""Share of such a loss: it was taken by a worker that ended before it could say so, or by none at all."""
ALMOST = 1.0 - 1e-9
"""Shares that come to a whole, whatever was lost in rounding."""


def known(state: State, event: WorkerHeartbeat) -> tuple[str, ...]:
    """The leases in a worker's engine, if what it says of them is exact; else nothing."""
    running = event.running or ()
    found = [state.live[state.leases[lease]] for lease in running if lease in state.leases]
    return running if any(entry.company for entry in found) else ()


def sharers(worker: Worker | None, lease: str, held: int) -> int:
    """How many share the blame for a worker's end with `lease`, itself included; 0: it is none of its doing.

    `held`: leases that the worker held when it ended.
    """
    if worker is None or not worker.engine:
        return max(1, held)
    return len(worker.engine) if lease in worker.engine else 0


def fewer(company: int, sharing: int) -> int:
    """Groups that may be together next time, after a loss that `sharing` groups shared.

    The square root: what ends a worker of 64 groups is alone on its fourth try, and yet a worker that ended by chance does
    not cost all of them a run alone.
    """
    return math.isqrt(min(company or sharing, sharing))


def suspect(entry: TaskEntry, sharing: int) -> bool:
    """Put an entry under suspicion for a loss that `sharing` groups share; whether its shares have come to a whole loss."""
    entry.company = fewer(entry.company, sharing) if entry.worker else entry.company or WATCHED
    entry.suspicion += 1.0 / sharing
    if entry.suspicion < ALMOST:
        return False
    entry.suspicion = max(0.0, entry.suspicion - 1.0)
    return True


def acquit(entry: TaskEntry) -> None:
    """Its worker survived it."""
    entry.company, entry.suspicion = 0, 0.0
