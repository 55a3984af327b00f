"""Slots, quotas and timeouts after an entry of the journal, by a count of our own. Invariant: free + leased = capacity.

Invariants 4 and 11 of docs/design.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from schemas.journal import BatchFolded
from schemas.states import UNDER_WAY
from services.scheduler.cohorts import limits_of, members
from services.scheduler.effects import Assign, Effect
from services.scheduler.lanes import Occupancy
from services.scheduler.policies import Policies
from services.scheduler.records import HELD
from services.scheduler.state import State
from tests.chaos.suite.findings import MOST, Audit

TIMED = (*UNDER_WAY, "backoff", "waiting")
"""States that end at a time, by docs/scheduling-failure.md; `ready` ends by condition."""


class Slots:
    """The count."""

    def __init__(self, policies: Policies, found: Audit, domains: Mapping[str, str]) -> None:
        """`domains`: domain of each lease that was given."""
        self._policies, self._found, self._domains = policies, found, domains
        self._epoch = 0
        self._borrowing: set[str] = set()
        """Domains that have held more than they own, and whose cohort has not got it back yet."""
        self._nominal: dict[str, int] = {}

    def after(self, entry: BatchFolded, state: State, effects: list[Effect]) -> None:
        """Free + leased = capacity, by our own count of the workers' heartbeats and of the entries' states."""
        now = state.meta.now
        where = f"after entry {entry.epoch}:{entry.seq}"
        held: dict[str, set[str]] = {}
        slots: Counter[str] = Counter()
        in_domain: Counter[str] = Counter()
        for task in state.live.values():
            if task.state not in HELD:
                continue
            held.setdefault(task.pool, set()).add(task.lease_id)
            slots[task.pool] += task.slots
            in_domain[task.domain] += task.slots
            self._found.check(4, "leases unexpired", int(entry.caught_up))
            if entry.caught_up and task.due_at <= now:
                self._found.find(
                    4, f"{where}: {task.id} holds a lease that ran out at {task.due_at}, it is {now}"
                )
        for task in state.live.values():
            timed = entry.caught_up and task.state in TIMED
            self._found.check(11, "states timed", int(timed))
            if timed and not now <= task.due_at < float("inf"):
                self._found.find(11, f"{where}: {task.id} in {task.state} times out at {task.due_at}")
        capacity: Counter[str] = Counter()
        for worker in state.workers.values():
            good = now - worker.seen_at < self._policies.worker_timeout_s
            if worker.service == "sampler" and not worker.draining and good:
                capacity[worker.pool] += worker.slots
        given = Counter(effect.pool for effect in effects if isinstance(effect, Assign))
        for pool in sorted(held.keys() | capacity.keys()):
            leased = held.get(pool, set())
            self._found.check(4, "pools counted", int(bool(leased)))
            there = state.occupied.get(pool, Occupancy())
            if (there.leases, there.slots) != (len(leased), slots[pool]) or not leased <= state.leases.keys():
                self._found.find(4, f"{where}: pool {pool} counts other leases than its {len(leased)}")
            self._found.use.append(
                (now, self._policies.shard, pool, slots[pool], capacity[pool], given[pool] > 0)
            )
            if given[pool] and slots[pool] > capacity[pool]:
                self._found.find(
                    4, f"{where}: {slots[pool]} slots of pool {pool} are leased, it has {capacity[pool]}"
                )
        self._quotas(where, state, effects, in_domain)
        self._lending(entry, state, in_domain)
        self._found.figures["most_leased"] = max(
            self._found.figures.get("most_leased", 0.0), float(sum(map(len, held.values())))
        )

    def _quotas(self, where: str, state: State, effects: list[Effect], in_domain: Counter[str]) -> None:
        """No lease is given beyond what a domain may hold, nor beyond what its cohort owns together."""
        policies = self._policies
        for domain in sorted({self._domains[e.lease_id] for e in effects if isinstance(e, Assign)}):
            limits = limits_of(state, policies, domain)
            if in_domain[domain] > limits.most:
                self._found.find(
                    4, f"{where}: {domain} holds {in_domain[domain]} slots, its most is {limits.most}"
                )
            if limits.cohort:
                names = members(policies, limits.cohort)
                nominal = sum(limits_of(state, policies, name).nominal for name in names)
                total = sum(in_domain[name] for name in names)
                if total > nominal:
                    self._found.find(
                        4, f"{where}: cohort {limits.cohort} holds {total} slots, it owns {nominal}"
                    )

    def _lending(self, entry: BatchFolded, state: State, in_domain: Counter[str]) -> None:
        """Count what cohorts lend: most that was borrowed, loans that outlived their scheduler, loans given back to an owner."""
        figures = self._found.figures
        claims = entry.epoch != self._epoch
        self._epoch = entry.epoch
        for domain in sorted(name for name, policy in self._policies.domains.items() if policy.cohort):
            limits = limits_of(state, self._policies, domain)
            borrowed = in_domain[domain] - limits.nominal
            figures["most_borrowed"] = max(figures.get("most_borrowed", 0.0), float(borrowed))
            if borrowed > 0:
                self._borrowing.add(domain)
                figures["borrowed_over_claim"] = figures.get("borrowed_over_claim", 0.0) + claims
            elif domain in self._borrowing:
                others = set(members(self._policies, limits.cohort)) - {domain}
                if any(in_domain[n] >= limits_of(state, self._policies, n).nominal > 0 for n in others):
                    self._borrowing.discard(domain)
                    figures["given_back"] = figures.get("given_back", 0.0) + 1.0
            before = self._nominal.setdefault(domain, limits.nominal)
            figures["quotas_changed"] = figures.get("quotas_changed", 0.0) + (before != limits.nominal)
            self._nominal[domain] = limits.nominal


def together(audits: list[Audit]) -> list[str]:
    """Findings over all shards: what they lease together is no more than there is, at each moment at which one gives a lease."""
    leased: dict[tuple[str, int], int] = {}
    there: dict[tuple[str, int], int] = {}
    found: list[str] = []
    for now, shard, pool, slots, capacity, gave in sorted(moment for part in audits for moment in part.use):
        leased[pool, shard], there[pool, shard] = slots, capacity
        total = sum(count for (name, _), count in leased.items() if name == pool)
        most = max(count for (name, _), count in there.items() if name == pool)
        if gave and total > most:
            found.append(
                f"invariant 4: at {now} the shards lease {total} slots of pool {pool}, it has {most}"
            )
    return found[:MOST]
