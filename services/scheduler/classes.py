"""Evaluation before training, but not for ever. Invariant: while both wait in a pool, training gets its share of the service.

Evaluation goes first: it is little, and a measurement that waits for training to run dry never comes. Each evaluation that is
given a lease while training waits in the same pool makes a debt to training there: its expected slot seconds times
`train_share / (1 - train_share)`. Once the debt pays for the training task that is next, that one goes first and is taken off.

So of all service given out while both wait, training gets at least `train_share`, less one debt and one task: let E and T be
the expected slot seconds of both classes since the debt was nothing, c the largest of one training task and d of one debt.
Debts add up to E x share / (1 - share), at most T of them is paid, and less than c + d is open at any time. Hence
T >= share x (E + T) - (1 - share) x (c + d). Debts are part of the records; a debt stays until it is paid, and grows no more
once it is due, so that training that cannot go saves up nothing.
"""

from __future__ import annotations

from services.scheduler.boards import Board, Key
from services.scheduler.estimates import estimate
from services.scheduler.policies import Policies
from services.scheduler.records import TaskEntry
from services.scheduler.state import State

EPSILON = 1e-9
"""Of a debt, what rounding may take from the sum of its parts."""


def service_s(state: State, policies: Policies, entry: TaskEntry) -> float:
    """Slot seconds that an attempt is expected to take, by what is known now, not when the task came in."""
    known = estimate(state.domains.get(entry.domain), policies.of(entry.domain).deadline, entry.kind)
    return known * entry.slots


def training(state: State, pool: str, borrows: int) -> Key | None:
    """The training that would go next in a pool, as far as domains decide that; those that borrow only if `borrows`."""
    board = state.lanes.get((pool, "train"))
    key = None if board is None else board.first()
    return key if key is not None and key[0] <= borrows else None


def due(state: State, policies: Policies, pool: str, borrows: int) -> bool:
    """Whether it is training's turn in a pool where evaluation waits too."""
    owed = state.meta.owed.get(pool, 0.0)
    if not owed:
        return False
    key = training(state, pool, borrows)
    board: Board | None = state.lanes.get((pool, "train"))
    entry = None if key is None or board is None else board[key[3]].first()
    return entry is not None and owed >= service_s(state, policies, entry) * (1.0 - EPSILON)


def charge_class(state: State, policies: Policies, entry: TaskEntry, *, waits: bool) -> None:
    """A lease was given. `waits`: training that could have had it waits in the pool."""
    owed = state.meta.owed
    if entry.purpose == "train":
        if left := owed.pop(entry.pool, 0.0):
            left -= service_s(state, policies, entry)
            if left > 0.0:
                owed[entry.pool] = left
    elif waits:
        share = policies.train_share
        debt = service_s(state, policies, entry) * share / (1.0 - share)
        owed[entry.pool] = owed.get(entry.pool, 0.0) + debt
