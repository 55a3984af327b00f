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

Fit = Literal["fits", "alone", "cohort", "never"]
"""Whether a domain has room for so many slots; if not, whether that changes by itself alone, with its cohort, or only with other
limits."""
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


def members(policies: Policies, cohort: str) -> tuple[str, ...]:
    """Domains of a cohort, by name."""
    return policies.cohorts.get(cohort, ())


def used(state: State, domain: str) -> int:
    """Slots that a domain's leases hold."""
    leases = state.held.get(domain)
    return 0 if leases is None else leases.slots


class Sums:
    """What cohorts lend, and how much of it is left. Derived; kept up by the domains that have changed, one step each."""

    __slots__ = ("lent", "limits", "of", "opened", "parts", "spare")

    def __init__(self, state: State, policies: Policies) -> None:
        self.of = policies.cohorts
        """The cohorts that these sums are of."""
        self.lent = dict.fromkeys(self.of, 0)
        self.spare = dict.fromkeys(self.of, 0)
        """Slots that a cohort's domains lend and nobody uses; negative after limits were cut below use."""
        self.opened = dict.fromkeys(self.of)
        """Cohorts that may have something to give which had nothing, since somebody last asked."""
        self.limits: dict[str, Limits] = {}
        """Those of domains that have a cohort."""
        self.parts: dict[str, tuple[int, int]] = {}
        """Domain -> its part in both sums."""
        for names in self.of.values():
            for name in names:
                self.renew(state, policies, name)

    def renew(self, state: State, policies: Policies, domain: str) -> None:
        """Take in what has become of a domain."""
        cohort = policies.of(domain).cohort
        if not cohort:
            return
        limits = self.limits[domain] = limits_of(state, policies, domain)
        own = limits.own
        lent = limits.nominal - own
        left = lent - max(0, used(state, domain) - own)
        before = self.parts.get(domain, (0, 0))
        self.parts[domain] = lent, left
        self.lent[cohort] += lent - before[0]
        self.spare[cohort] += left - before[1]
        if left > before[1] and self.spare[cohort] > 0:
            self.opened[cohort] = None

    def took(self, domain: str, held: int) -> None:
        """The same for a domain of a cohort of which nothing has changed but that it holds more slots, `held` by now."""
        limits = self.limits[domain]
        lent, before = self.parts[domain]
        left = lent - max(0, held - limits.nominal + lent)
        self.parts[domain] = lent, left
        self.spare[limits.cohort] += left - before

    def reopened(self) -> list[str]:
        """Cohorts to look at again; each is told once."""
        found = list(self.opened)
        self.opened.clear()
        return found


def sums(state: State, policies: Policies) -> Sums:
    """The sums as of now."""
    found = state.sums
    if found is None or found.of is not policies.cohorts:
        found = state.sums = Sums(state, policies)
    else:
        for domain in state.stirred:
            found.renew(state, policies, domain)
    state.stirred.clear()
    return found


def spare(state: State, policies: Policies, cohort: str) -> int:
    """Slots that a cohort's domains lend and nobody uses; negative after limits were cut below use."""
    return sums(state, policies).spare[cohort]


def largest(state: State, policies: Policies, domain: str) -> float:
    """Slots that an attempt of a domain may need at most and still be started, once everything else has ended."""
    limits = limits_of(state, policies, domain)
    if not limits.cohort:
        return limits.most
    return min(limits.most, limits.own + sums(state, policies).lent[limits.cohort])


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
    """Cohorts during one dispatch."""

    __slots__ = ("_policies", "_state", "_sums", "held_back")

    def __init__(self, state: State, policies: Policies) -> None:
        self._state, self._policies = state, policies
        self._sums = sums(state, policies) if policies.cohorts else None
        self.held_back: set[str] = set()
        """Cohorts whose free slots are held back for a task that needs more of them than there are."""

    def closed(self, cohort: str) -> bool:
        """Whether nobody gets anything of what a cohort lends."""
        return cohort in self.held_back or (self._sums is not None and self._sums.spare[cohort] <= 0)

    def fit(self, domain: str, slots: int) -> Fit:
        """Whether an attempt that needs `slots` may be started; what it may not is held for it in its cohort."""
        found = self._sums
        held = used(self._state, domain)
        limits = None if found is None else found.limits.get(domain)
        if found is None or limits is None:
            return "fits" if held + slots <= limits_of(self._state, self._policies, domain).most else "alone"
        own = limits.own
        if held + slots > limits.most:
            return "alone"
        cohort = limits.cohort
        if held + slots <= own:
            return "fits"
        if cohort in self.held_back:
            return "cohort"
        if held + slots - max(own, held) <= found.spare[cohort]:
            return "fits"
        if slots > own + found.lent[cohort]:
            return "never"
        self.held_back.add(cohort)
        if found.spare[cohort] > 0:
            found.opened[cohort] = None  # the next dispatch looks again who is first
        return "cohort"

    def give(self, domain: str) -> None:
        """An attempt was started, its slots are held already."""
        if self._sums is not None:
            self._sums.took(domain, used(self._state, domain))
            self._state.stirred.pop(domain, None)
