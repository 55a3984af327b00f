"""What the fold must know about domains and the run. Invariant: made once from the cards at start, never changed by events.

The fold reads nothing else about configuration, so a replay with a table of the same digest gives the same state.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from schemas.cards import Card, Deadline, Ladder, Retry, Timeouts
from schemas.ids import digest
from schemas.run import RunConfig
from schemas.tasks import Sampling


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How one domain is scheduled."""

    layer: str = "foundation"
    weight: float = 1.0
    nominal: int = 0
    """Leases at a time; 0 is no limit."""
    retry: Retry = Retry()
    ladder: Ladder = Ladder()
    deadline: Deadline = Deadline()
    timeouts: Timeouts = Timeouts()
    sampling: Sampling = Sampling()


_DEFAULT = Policy()


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """All domains, and the run's own figures."""

    domains: dict[str, Policy] = {}
    run: str = "run"
    pool: str = "standard"
    """Sampler pool that serves the run's tasks."""
    group_size: int = 8
    groups_per_step: int = 24
    eta: int = 4
    ready_cap: int = 100_000
    half_life_s: float = 300.0
    worker_timeout_s: float = 10.0
    """A worker without a heartbeat for this long gives no credits."""
    worker_memory_s: float = 3600.0
    """A worker without a heartbeat for this long is forgotten."""

    def of(self, domain: str) -> Policy:
        """Policy of `domain`; the defaults for a domain that a former card table knew and this one does not."""
        return self.domains.get(domain, _DEFAULT)

    def digest(self) -> str:
        """Digest of the whole table; recorded with the state."""
        return digest(msgspec.msgpack.encode(self, order="deterministic"))[:16]


def policies_of(cards: Mapping[str, Card], config: RunConfig) -> Policies:
    """The table for these cards and this run."""
    return Policies(
        domains={name: _policy(card, config) for name, card in sorted(cards.items())},
        run=config.name,
        pool=config.sampler.pool,
        group_size=config.training.group_size,
        groups_per_step=config.training.groups_per_step,
        eta=config.scheduler.staleness,
        ready_cap=config.scheduler.ready_cap,
        half_life_s=config.scheduler.half_life_s,
    )


def _policy(card: Card, config: RunConfig) -> Policy:
    retry = card.retry
    if retry == Retry():
        retry = msgspec.structs.replace(retry, infra=config.scheduler.max_losses)
    sampling = card.sampling
    return Policy(
        layer=card.layer,
        weight=card.weight,
        nominal=card.quota.nominal,
        retry=retry,
        ladder=card.ladder,
        deadline=card.deadline,
        timeouts=card.timeouts,
        sampling=Sampling(
            temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=sampling.max_tokens
        ),
    )
