"""Quotas of domains and their cohorts. Invariant: a cohort's domains together never hold more than their nominal quotas.

Each domain owns `nominal` slots. Of these it lends at most `lend` while it does not use them; the others stay its own. It
borrows at most `borrow` of what the other domains of its cohort lend. Nothing is taken back from a running attempt: a lender
gets its slots again because, as leases end, borrowers are served only when nobody waits for what is his own.
Outside a cohort `nominal` is a limit, and 0 is none; within one, 0 is a domain that owns nothing and only borrows.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from schemas.tasks import Task
from services.scheduler.policies import Policies
from services.scheduler.state import State

Fit = Literal["fits", "alone", "cohort"]
"""Whether a domain has room for so many slots; if not, whether that changes by itself alone or with its cohort."""
NO_LIMIT = float("inf")
BYTES_A_TOKEN = 4
"""Of a prompt, about; more would make long prompts of byte-level models look small, less those of all others big."""


class Limits(NamedTuple):
    """What holds for a domain now."""

    nominal: int
    borrow: int | None
    lend: int | None
    cohort: str

    @property
    def own(self) -> int:
        """Slots that are never lent."""
        return 0 if self.lend is None else max(0, self.nominal - self.lend)

    @property
    def lent(self) -> int:
        """Slots that others may use while it does not."""
        return self.nominal - self.own

    @property
    def most(self) -> float:
        """Slots that it may hold by its own limits."""
        if self.cohort:
            return NO_LIMIT if self.borrow is None else self.nominal + self.borrow
        return self.nominal or NO_LIMIT


def limits_of(state: State, policies: Policies, domain: str) -> Limits:
    """The card's limits, or what an event has set since."""
    policy = policies.of(domain)
    record = state.domains.get(domain)
    if record is None:
        return Limits(policy.nominal, policy.borrow, policy.lend, policy.cohort)
    return Limits(
        policy.nominal if record.nominal is None else record.nominal,
        policy.borrow if record.borrow is None else record.borrow,
        policy.lend if record.lend is None else record.lend,
        policy.cohort,
    )


def limited(state: State, policies: Policies, domain: str) -> bool:
    """Whether a quota holds for a domain at all."""
    policy = policies.of(domain)
    if policy.cohort:
        return True
    record = state.domains.get(domain)
    return bool(policy.nominal if record is None or record.nominal is None else record.nominal)


def members(policies: Policies, cohort: str) -> tuple[str, ...]:
    """Domains of a cohort, by name."""
    return tuple(sorted(name for name, policy in policies.domains.items() if policy.cohort == cohort))


def used(state: State, domain: str) -> int:
    """Slots that a domain's leases hold."""
    leases = state.held.get(domain)
    return 0 if leases is None else leases.slots


def spare(state: State, policies: Policies, cohort: str) -> int:
    """Slots that a cohort's domains lend and nobody uses; negative after limits were cut below use."""
    free = 0
    for name in members(policies, cohort):
        limits = limits_of(state, policies, name)
        free += limits.lent - max(0, used(state, name) - limits.own)
    return free


def largest(state: State, policies: Policies, domain: str) -> float:
    """Slots that an attempt of a domain may need at most and still be started, once everything else has ended."""
    limits = limits_of(state, policies, domain)
    if not limits.cohort:
        return limits.most
    lent = sum(limits_of(state, policies, name).lent for name in members(policies, limits.cohort))
    return min(limits.most, limits.own + lent)


def never_fits(state: State, policies: Policies, task: Task) -> str:
    """One line if an attempt at a task needs more than its domain's quota or its pool can ever give; else nothing.

    What a pool has at most is only known where `scheduler.pool_slots` or `pool_tokens` says so. The samplers that are here
    now prove nothing: bigger ones may come. A task that fits none of them waits, and `temper explain` says so.
    """
    policy = policies.of(task.domain)
    pool = task.pool or policies.pool
    most = largest(state, policies, task.domain)
    if policy.slots > most:
        return (
            f"an attempt of domain {task.domain} needs {policy.slots} slots, its quota never gives more than {int(most)}; "
            "raise quota.nominal or lower request.slots of its card"
        )
    slots = policies.pool_slots.get(pool, 0)
    if slots and policy.slots > slots:
        return (
            f"an attempt of domain {task.domain} needs {policy.slots} slots, pool {pool} has {slots}; "
            "lower request.slots of the card or raise scheduler.pool_slots"
        )
    tokens = tokens_of(policies, task)
    capacity = policies.pool_tokens.get(pool, 0)
    if capacity and tokens > capacity:
        return (
            f"an attempt may hold {tokens} tokens, pool {pool} has {capacity}; "
            "lower max_tokens or group_size of the task or raise scheduler.pool_tokens"
        )
    return ""


def tokens_of(policies: Policies, task: Task) -> int:
    """Tokens that an attempt at a task may hold at a time: its prompt once, which the group shares, and group size x max_tokens.

    The prompt is not tokenised here: it counts a token for each `BYTES_A_TOKEN` bytes. No sample is longer than the run's
    samplers take.
    """
    sampling = task.sampling or policies.of(task.domain).sampling
    members = task.group_size or policies.group_size
    prompt = (len(task.prompt.encode()) + len(task.system.encode())) // BYTES_A_TOKEN
    tokens = prompt + members * sampling.max_tokens
    return min(tokens, members * policies.max_model_len) if policies.max_model_len else tokens


class Ledger:
    """Room of domains during one dispatch: the sums over a cohort are made once."""

    __slots__ = ("_policies", "_spare", "_state", "blocked")

    def __init__(self, state: State, policies: Policies) -> None:
        self._state, self._policies = state, policies
        self._spare: dict[str, int] = {}
        self.blocked: set[str] = set()
        """Cohorts whose free slots are held back for a task that needs more of them than there are."""

    def fit(self, domain: str, slots: int) -> Fit:
        """Whether an attempt that needs `slots` may be started; what it may not is held for it in its cohort."""
        if not limited(self._state, self._policies, domain):
            return "fits"
        limits = limits_of(self._state, self._policies, domain)
        wanted = used(self._state, domain) + slots
        if wanted > limits.most:
            return "alone"
        if not limits.cohort or wanted <= limits.own:
            return "fits"
        cohort = limits.cohort
        if cohort not in self.blocked:
            if cohort not in self._spare:
                self._spare[cohort] = spare(self._state, self._policies, cohort)
            if wanted - max(limits.own, wanted - slots) <= self._spare[cohort]:
                return "fits"
            if slots <= largest(self._state, self._policies, domain):
                self.blocked.add(cohort)
        return "cohort"

    def give(self, domain: str, slots: int) -> None:
        """An attempt was started, its slots are held already."""
        if self._spare:
            limits = limits_of(self._state, self._policies, domain)
            if limits.cohort in self._spare:
                after = used(self._state, domain)
                self._spare[limits.cohort] -= max(0, after - max(limits.own, after - slots))
