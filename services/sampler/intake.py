"""Which work is taken, and when it starts. Invariant: a lease starts at most once, alive, under the policy it asks for.

Pure: time is an argument (seconds since the epoch); engines and topics are the caller's.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from schemas.assignments import AttemptAssigned
from schemas.tasks import PolicyRef
from services.runtime.fence import EpochFence
from services.runtime.leases import LeaseTable

REMEMBERED = 16_384
"""Ended leases that are still recognised as duplicates."""

KEPT = 16
"""Published versions that are remembered, to fall back on when newer ones are refused."""

Answer = Literal["taken", "duplicate", "expired", "full"]


@dataclass(frozen=True, slots=True)
class Start:
    """Submit this group to the engine now."""

    assigned: AttemptAssigned


@dataclass(frozen=True, slots=True)
class Switch:
    """Load this version; nothing starts before it has been loaded or refused."""

    policy: PolicyRef


@dataclass(frozen=True, slots=True)
class Reject:
    """Abandon this group: the policy it asks for has been refused, or its lease ended before it began."""

    assigned: AttemptAssigned
    reason: Literal["refused", "expired"]
    detail: str


Action = Start | Switch | Reject


@dataclass(slots=True)
class _Held:
    assigned: AttemptAssigned
    lease_s: float
    ends_at: float
    """No renewal goes beyond."""
    running: bool = False
    lapsed: bool = False


class Intake:
    """Leases held by one sampler, and the policy versions they need."""

    def __init__(self, *, slots: int, capacity: int) -> None:
        """At most `slots` groups run at a time, at most `capacity` are held."""
        self._slots, self._capacity = slots, capacity
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._leases = LeaseTable()
        self.fence = EpochFence()
        self._refused: dict[tuple[int, str], str] = {}
        self.current: PolicyRef | None = None
        """In the engine; an empty digest stands for the base from the configuration, before its publication."""
        self._published: list[PolicyRef] = []
        """By version; the newest one that was not refused serves."""
        self.switching: PolicyRef | None = None

    def offer(self, assigned: AttemptAssigned, now: float, sent_at: float) -> Answer:
        """Take the lease of an assignment written at `sent_at`, unless it is known, over, or there is no room."""
        lease_id = assigned.lease_id
        if lease_id in self._held or lease_id in self._ended:
            return "duplicate"
        if not assigned.lease_s and assigned.lease_expires_at <= now:
            return "expired"
        if len(self._held) >= self._capacity:
            return "full"
        # The length and our own clock where it is said: the scheduler's clock may be wrong, and a lease that ran out
        # before it arrived is followed by its revocation in the same partition.
        lease_s = assigned.lease_s or max(0.0, assigned.lease_expires_at - sent_at)
        ends_at = now + assigned.attempt_s if assigned.attempt_s else math.inf
        self._held[lease_id] = _Held(assigned, lease_s, ends_at)
        self._leases.take(lease_id, now + lease_s if assigned.lease_s else assigned.lease_expires_at)
        return "taken"

    def end(self, lease_id: str) -> bool:
        """A group has ended, however; False if the lease is not held."""
        self._leases.release(lease_id)
        if self._held.pop(lease_id, None) is None:
            return False
        self.forget(lease_id)
        return True

    def forget(self, lease_id: str) -> None:
        """Never take this lease (again)."""
        self._ended[lease_id] = None
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def renewed(self, lease_ids: tuple[str, ...], at: float) -> None:
        """A heartbeat written at `at` named these leases."""
        for lease_id in lease_ids:
            held = self._held.get(lease_id)
            if held is not None:
                self._leases.renew([lease_id], min(at + held.lease_s, held.ends_at))

    def lapsed(self, now: float) -> list[str]:
        """Leases that are over, by this worker's clock, while their groups are in the engine; each is told once.

        Nobody has heard of this worker for so long that the scheduler gives the work to another; or the attempt has had all
        its time, and the word of that has come to another worker, which has the partition now.
        """
        live = set(self._leases.live(now))
        found = [
            lease_id
            for lease_id, held in self._held.items()
            if held.running and not held.lapsed and lease_id not in live
        ]
        for lease_id in found:
            self._held[lease_id].lapsed = True
        return found

    def publish(self, policy: PolicyRef) -> None:
        """A version of the run has been published; a later record of the same version takes its place."""
        others = [known for known in self._published if known.version != policy.version]
        self._published = sorted([*others, policy], key=lambda known: known.version)[-KEPT:]

    @property
    def newest(self) -> PolicyRef | None:
        """The newest published version that was not refused."""
        good = (policy for policy in reversed(self._published) if _identity(policy) not in self._refused)
        return next(good, None)

    def loaded(self, policy: PolicyRef) -> None:
        """The engine has this version."""
        self.current, self.switching = policy, None

    def refuse(self, policy: PolicyRef, reason: str) -> None:
        """The version must not serve; the engine still has the previous one."""
        self._refused[_identity(policy)] = reason
        self.switching = None

    def held(self) -> tuple[str, ...]:
        """Leases this sampler answers for, oldest first."""
        return tuple(self._held)

    def waiting(self) -> list[AttemptAssigned]:
        """Groups that have not started."""
        return [held.assigned for held in self._held.values() if not held.running]

    def inside(self) -> dict[str, int]:
        """Leases whose groups are in the engine, with the company that each may have."""
        return {lease_id: held.assigned.company for lease_id, held in self._held.items() if held.running}

    def running(self) -> int:
        """Groups in the engine."""
        return sum(held.running for held in self._held.values())

    def full(self) -> bool:
        """Whether an offer would be answered `full`."""
        return len(self._held) >= self._capacity

    def decide(self, now: float) -> list[Action]:
        """What to do now; started groups count as running from here on, a switch as begun.

        Pinned groups come first: what runs finishes, then their version is loaded, all groups pinned to it run, and the engine
        returns to the newest version. Other groups keep running while a newer version is loaded.
        """
        if self.switching is not None:
            return []
        rejects = self._rejects(now)
        gone = {action.assigned.lease_id for action in rejects}
        actions: list[Action] = list(rejects)
        open_ = [held for lease_id, held in self._held.items() if lease_id not in gone]
        pinned = next(
            (held.assigned.task.policy for held in self._by_pin(open_) if held.assigned.task.policy), None
        )
        wanted = pinned or self._serving()
        if wanted is None:
            return actions
        if not self._is_current(wanted):
            if pinned is None or not any(held.running for held in open_):
                self.switching = wanted
                actions.append(Switch(wanted))
            return actions
        inside = [held.assigned.company for held in open_ if held.running]
        for held in open_:
            if len(inside) >= self._slots:
                break
            policy = held.assigned.task.policy
            fits = self._is_current(policy) if policy is not None else self._serves_unpinned(pinned)
            if not held.running and fits:
                if not _together([*inside, held.assigned.company]):
                    break  # what came later waits too, or this would for ever
                held.running = True
                inside.append(held.assigned.company)
                actions.append(Start(held.assigned))
        return actions

    def _rejects(self, now: float) -> list[Reject]:
        live = set(self._leases.live(now))
        found: list[Reject] = []
        for lease_id, held in self._held.items():
            policy = held.assigned.task.policy
            if held.running:
                continue
            if policy is not None and _identity(policy) in self._refused:
                found.append(Reject(held.assigned, "refused", self._refused[_identity(policy)]))
            elif lease_id not in live:
                found.append(Reject(held.assigned, "expired", "the lease ended before the group began"))
        return found

    def _by_pin(self, open_: list[_Held]) -> list[_Held]:
        """Pinned groups; those of the loaded version first, so that it serves all of them before the next."""
        pinned = [held for held in open_ if held.assigned.task.policy is not None]
        return sorted(pinned, key=lambda held: not self._is_current(held.assigned.task.policy))

    def _serving(self) -> PolicyRef | None:
        """What unpinned groups are to be sampled from."""
        return self.newest or self.current

    def _serves_unpinned(self, pinned: PolicyRef | None) -> bool:
        return pinned is None or self._is_current(self._serving())

    def _is_current(self, policy: PolicyRef | None) -> bool:
        # Both: a version whose step taught nothing has its predecessor's weights, and yet its tokens are of the new version.
        return (
            policy is not None and self.current is not None and _identity(policy) == _identity(self.current)
        )


def _together(companies: list[int]) -> bool:
    """Whether groups that may have so much company each (0: any) may be in the engine together."""
    return all(not company or len(companies) <= company for company in companies)


def _identity(policy: PolicyRef) -> tuple[int, str]:
    return policy.version, policy.digest
