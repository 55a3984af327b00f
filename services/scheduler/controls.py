"""Pause, resume, drain and quotas. Invariant: a control is taken whole or refused whole, with one line that says why.

A quota may not promise more than exists (`quotas.there`): alone, what the domain may hold; in a cohort, what its domains own
together, which is all they may ever hold. Where that is not known it is taken, and the domain's record says what was not
checked. One that lowers a promise is never too high.

What runs goes on, but for a drained domain: its attempts are taken back, at no cost to their tasks. A refused control changes
nothing; it is counted by its cause, and the domain's record keeps the line.
"""

from __future__ import annotations

from typing import Literal, get_args

from schemas.tasks import (
    DomainDrained,
    DomainPaused,
    DomainResumed,
    PoolDrained,
    PoolResumed,
    QuotaChanged,
)
from services.scheduler.attempts import finish
from services.scheduler.cohorts import Limits, limits_of, members, spare, used
from services.scheduler.effects import Effect
from services.scheduler.moves import revoke
from services.scheduler.policies import Policies
from services.scheduler.quotas import there
from services.scheduler.records import HELD
from services.scheduler.state import State, under_way

Refusal = Literal[
    "control_of_unknown_domain",
    "control_of_unknown_pool",
    "quota_above_capacity",
    "quota_below_lent",
    "quota_below_request",
    "quota_lend_above_nominal",
    "quota_without_cohort",
]
"""Why a control is refused, in a word; what it is counted by."""
REFUSALS: tuple[Refusal, ...] = get_args(Refusal)
Control = DomainPaused | DomainResumed | DomainDrained | QuotaChanged | PoolDrained | PoolResumed


def control(state: State, policies: Policies, event: Control, now: float) -> list[Effect]:
    """Take a control in."""
    cause, line = refusal(state, policies, event, now)
    if cause:
        state.count(cause)
        if isinstance(event, QuotaChanged) and event.domain in policies.domains:
            state.domain(event.domain).refused = line
        return []
    if isinstance(event, PoolDrained | PoolResumed):
        _pool(state, event)
        return []
    record = state.domain(event.domain)
    before = (record.paused, record.nominal, record.borrow, record.lend)
    record.refused = ""
    if isinstance(event, QuotaChanged):
        record.nominal = event.nominal
        record.borrow = record.borrow if event.borrow is None else event.borrow
        record.lend = record.lend if event.lend is None else event.lend
        record.unproven = unproven(state, policies, event, now)
    else:
        record.paused = not isinstance(event, DomainResumed)
    effects = _take_back(state, policies, event.domain, now) if isinstance(event, DomainDrained) else []
    if not effects and before == (record.paused, record.nominal, record.borrow, record.lend):
        state.count("control_without_change")
    return effects


def refusal(
    state: State, policies: Policies, event: Control, now: float | None = None
) -> tuple[Refusal | Literal[""], str]:
    """Why a control is refused, in a word and in a line that says what to do; empty if it is not.

    `now` is the state's own time unless given.
    """
    if isinstance(event, PoolDrained | PoolResumed):
        if event.pool in (policies.pool, *policies.pools):
            return "", ""
        known = ", ".join(sorted({policies.pool, *policies.pools}))
        return "control_of_unknown_pool", f"unknown pool {event.pool[:64]!r}; the pools are {known}"
    if event.domain not in policies.domains:
        return (
            "control_of_unknown_domain",
            f"unknown domain {event.domain!r}; `temper domains ls` lists the known ones",
        )
    if not isinstance(event, QuotaChanged):
        return "", ""
    return _quota(state, policies, event, state.meta.now if now is None else now)


def unproven(state: State, policies: Policies, event: QuotaChanged, now: float) -> str:
    """What of a quota that is not refused could not be checked, in one line; empty if nothing."""
    unknown = there(state, policies, _together(policies, event.domain), now).unknown
    if not event.nominal or not unknown:
        return ""
    return (
        f"whether there are {event.nominal} slots for domain {event.domain} was not checked: no live sampler of pool "
        f"{', '.join(unknown)} has told of any, and scheduler.pool_slots does not say"
    )


def _together(policies: Policies, domain: str) -> tuple[str, ...]:
    """The domains that share a quota with this one, itself included."""
    return members(policies, policies.of(domain).cohort) or (domain,)


def _above(state: State, policies: Policies, old: Limits, event: QuotaChanged, now: float) -> str:
    """The line for a quota that promises more than exists; empty if this one does not."""
    exist = there(state, policies, _together(policies, event.domain), now)
    if exist.unknown:
        return ""
    if not old.cohort:
        if event.nominal <= exist.slots or event.nominal < old.nominal:
            return ""
        return (
            f"a quota of {event.nominal} for domain {event.domain} is more than the {exist.slots} slots that there are "
            "in the pools of its tasks; start more samplers first"
        )
    others = sum(
        limits_of(state, policies, name).nominal
        for name in members(policies, old.cohort)
        if name != event.domain
    )
    if event.nominal <= old.nominal or others + event.nominal <= exist.slots:
        return ""
    return (
        f"a quota of {event.nominal} for domain {event.domain} makes cohort {old.cohort} own {others + event.nominal} slots, "
        f"and there are {exist.slots} in the pools of its tasks; lower another's first, or start more samplers"
    )


def _quota(
    state: State, policies: Policies, event: QuotaChanged, now: float
) -> tuple[Refusal | Literal[""], str]:
    domain, policy = event.domain, policies.of(event.domain)
    old = limits_of(state, policies, domain)
    new = Limits(
        event.nominal,
        old.borrow if event.borrow is None else event.borrow,
        old.lend if event.lend is None else event.lend,
        old.cohort,
    )
    if not old.cohort and (event.borrow is not None or event.lend is not None):
        return (
            "quota_without_cohort",
            f"domain {domain} has no cohort to borrow from or lend to; set quota.cohort in its card, or leave both out",
        )
    if event.lend is not None and event.lend > event.nominal:
        return (
            "quota_lend_above_nominal",
            f"domain {domain} cannot lend {event.lend} of {event.nominal} slots; lend at most its quota",
        )
    if line := _above(state, policies, old, event, now):
        return "quota_above_capacity", line
    if policy.slots > new.most:
        return (
            "quota_below_request",
            f"a quota of {event.nominal} for domain {domain} is less than the {policy.slots} slots of one attempt; raise it",
        )
    if old.cohort:
        held = used(state, domain)
        before = spare(state, policies, old.cohort)
        lent = before - (old.lent - max(0, held - old.own)) + (new.lent - max(0, held - new.own))
        if lent < 0 and lent < before:
            return (
                "quota_below_lent",
                f"domain {domain} has lent {-lent} slots more than that leaves to cohort {old.cohort}; wait for them to end",
            )
    return "", ""


def _pool(state: State, event: PoolDrained | PoolResumed) -> None:
    drained = set(state.meta.drained)
    changed = drained | {event.pool} if isinstance(event, PoolDrained) else drained - {event.pool}
    if changed == drained:
        state.count("control_without_change")
    state.meta.drained = sorted(changed)


def _take_back(state: State, policies: Policies, domain: str, now: float) -> list[Effect]:
    """End all attempts of a domain that hold slots; their tasks wait for the domain to be resumed."""
    held = [entry for entry in under_way(state) if entry.domain == domain and entry.state in HELD]
    held.sort(key=lambda entry: entry.order)
    effects: list[Effect] = []
    for entry in held:
        effects.append(revoke(entry, "drained"))
        effects += finish(state, policies, entry, now, fault="drained", detail=f"domain {domain} drained")
    return effects
