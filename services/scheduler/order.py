"""Order. Invariant: a total order; no task is overtaken in its lane by one that became eligible more than the cap later.

Between domains: weighted fair queueing on decayed service seconds, charged with the estimate at dispatch (the entry
penalty of Kueue KEP-4136) and corrected when the slot is free again, to at most twice the estimate: a stalled engine is
not the fault of the domain that was running, and must not cost it its turns. Within a domain: smallest virtual deadline.
"""

from __future__ import annotations

import math
from functools import lru_cache

from schemas.cards import Deadline
from services.scheduler.policies import Policies, Policy
from services.scheduler.powers import exp2
from services.scheduler.records import Domain, Share, TaskEntry
from services.scheduler.state import State

NOTHING = (-(1 << 60), 0.0)
"""Rank of a domain that has used nothing: before all others."""
MOST_BILLED = 2.0
"""Times its estimate that an attempt is charged at most; a domain that really takes longer has a higher median soon."""


def virtual_deadline(eligible_at: float, estimate_s: float, priority: int, deadline: Deadline) -> float:
    """`eligible_at + min(slack * estimate, cap) - priority`, in seconds; static, so the order never needs re-scoring."""
    return eligible_at + min(deadline.slack * estimate_s, deadline.cap_s) - priority


def started_deadline(eligible_at: float, priority: int) -> float:
    """What the deadline of a task becomes with its first attempt: its slack is not counted any more, `eligible_at - priority`.

    So started work goes before other that became eligible at about the same time, however short that is, and the bound of
    the lane still holds: a started task goes before none that was eligible earlier by more than the difference in priority.
    """
    return eligible_at - priority


def decayed(share: Share | None, now: float, half_life_s: float) -> float:
    """Service seconds of a share as of `now`: they halve every `half_life_s`, to nine digits."""
    if share is None or share.usage == 0.0:
        return 0.0
    if share.at >= now:
        return share.usage
    since, at = _growth(share.at, half_life_s), _growth(now, half_life_s)
    return math.ldexp(share.usage * (since[1] / at[1]), since[0] - at[0])


def weight_of(state: State, policies: Policies, domain: str) -> float:
    """Effective weight of a domain: its card's, times the factor of mixed sampling."""
    record = state.domains.get(domain)
    return policies.of(domain).weight * (1.0 if record is None else record.mix)


def fair_key(state: State, policies: Policies, domain: str, purpose: str, now: float) -> float:
    """What domains are compared by, smallest first: decayed service seconds over weight."""
    record = state.domains.get(domain)
    share = None if record is None else record.shares.get(purpose)
    return decayed(share, now, policies.half_life_s) / weight_of(state, policies, domain)


@lru_cache(maxsize=1024)
def _growth(at: float, half_life_s: float) -> tuple[int, float]:
    """`2 ** (at / half_life_s)` as (whole exponent, factor in [1, 2)): it is far beyond any float."""
    halves = at / half_life_s
    whole = math.floor(halves)
    return whole, exp2(halves - whole)


def rank_of(share: Share, weight: float, half_life_s: float) -> tuple[int, float]:
    """The fair key as of any one time, as (exponent, mantissa): the order of `fair_key` at every `now`.

    All usage halves alike, so `usage * 2 ** (at / half_life)` does not change until the next charge.
    """
    if share.usage == 0.0:
        return NOTHING
    whole, factor = _growth(share.at, half_life_s)
    mantissa, exponent = math.frexp(share.usage / weight * factor)
    return exponent + whole, mantissa


def rank(record: Domain | None, policy: Policy, purpose: str, half_life_s: float) -> tuple[int, float]:
    """The rank of a domain, by what is known of it (None: nothing) and its card."""
    share = None if record is None else record.shares.get(purpose)
    if record is None or share is None:
        return NOTHING
    return rank_of(share, policy.weight * record.mix, half_life_s)


def charge(state: State, policies: Policies, entry: TaskEntry, seconds: float, now: float) -> None:
    """Add service seconds (negative to correct an estimate) to the entry's domain and purpose."""
    shares = state.domain(entry.domain).shares
    share = shares.get(entry.purpose)
    if share is None:
        share = shares[entry.purpose] = Share()
    share.usage = max(0.0, decayed(share, now, policies.half_life_s) + seconds)
    share.at = now
    entry.charged_s += seconds


def billed(entry: TaskEntry, seconds: float) -> float:
    """Service seconds that an attempt is charged for having held its slot for `seconds`."""
    return min(seconds, MOST_BILLED * entry.estimate_s)
