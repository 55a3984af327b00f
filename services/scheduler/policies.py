"""What the fold must know about domains and the run. Invariant: made once from the cards at start, never changed by events.

The fold reads nothing else about configuration, so a replay with a table of the same digest gives the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from schemas.cards import Card, Deadline, Ladder, Retry, Timeouts
from schemas.ids import digest
from schemas.run import RunConfig
from schemas.tasks import Sampling
from schemas.topics import POOLS
from services.runtime.settings import SettingsError


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How one domain is scheduled."""

    layer: str = "foundation"
    weight: float = 1.0
    nominal: int = 0
    """Slots at a time; 0 is no limit. See `cohorts` for this and the next three."""
    cohort: str = ""
    borrow: int | None = None
    lend: int | None = None
    slots: int = 1
    """Slots that an attempt holds."""
    retry: Retry = Retry()
    ladder: Ladder = Ladder()
    deadline: Deadline = Deadline()
    timeouts: Timeouts = Timeouts()
    sampling: Sampling = Sampling()


_DEFAULT = Policy()
LEAST_BEATS = 3
"""Heartbeats that a lease must outlast, so that one lost or late one does not end it."""


class Policies(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All domains, and the run's own figures."""

    domains: dict[str, Policy] = {}
    run: str = "run"
    pool: str = "standard"
    """Sampler pool that serves the run's tasks."""
    pools: tuple[str, ...] = POOLS
    """Sampler pools that tasks may ask for, beside the run's own."""
    group_size: int = 8
    groups_per_step: int = 24
    eta: int = 4
    ready_cap: int = 100_000
    half_life_s: float = 300.0
    mix: str = "weights"
    """`weights` or `variance`: what steers domains within their layer."""
    layers: dict[str, float] = {}
    """Ratios between layers; empty: as the cards' weights have it."""
    mix_floor: float = 0.25
    mix_window: tuple[float, float] = (0.05, 0.95)
    degenerate: float = 1e-6
    """Groups whose scores differ by no more than this teach nothing."""
    worker_timeout_s: float = 10.0
    """A worker without a heartbeat for this long gives no credits."""
    worker_memory_s: float = 3600.0
    """A worker without a heartbeat for this long is forgotten."""
    ended_kept_s: float = 604_800.0
    """How long an ended task is remembered; see `forget`."""
    ended_kept: int = 1_000_000
    """Ended tasks that are remembered at most, and refused ones beside them."""
    pool_slots: dict[str, int] = {}
    """Slots that a pool is set up to have in all; a pool that is not named may have any number."""
    pool_tokens: dict[str, int] = {}
    """Likewise, tokens at a time."""
    max_model_len: int = 0
    """Tokens of a prompt and one sample together at most, in the run's samplers; 0: not known."""
    verify_backlog: int = 512
    """Samples under way for each slot of the verifiers at most; 0 is no limit."""
    train_share: float = 0.1
    """Part of a pool's service that training keeps while evaluation waits without end; see `classes`."""
    shard: int = 0
    shards: int = 1
    """Into how many parts the domains are divided."""

    @cached_property
    def cohorts(self) -> dict[str, tuple[str, ...]]:
        """Domains of each cohort, by name; made once for a table."""
        found: dict[str, list[str]] = {}
        for name, policy in sorted(self.domains.items()):
            if policy.cohort:
                found.setdefault(policy.cohort, []).append(name)
        return {cohort: tuple(names) for cohort, names in sorted(found.items())}

    def owns(self, domain: str) -> bool:
        """Whether this shard decides for `domain`. A cohort lies in one shard, so that its quotas hold within one fold."""
        if self.shards == 1:
            return True
        name = self.of(domain).cohort or domain
        return int(digest(name.encode())[:12], 16) % self.shards == self.shard

    def of(self, domain: str) -> Policy:
        """Policy of `domain`; the defaults for a domain that a former card table knew and this one does not."""
        return self.domains.get(domain, _DEFAULT)

    def digest(self) -> str:
        """Digest of the whole table; recorded with the state."""
        return digest(msgspec.msgpack.encode(self, order="deterministic"))[:16]


def policies_of(cards: Mapping[str, Card], config: RunConfig) -> Policies:
    """The table for these cards and this run.

    Raises:
        SettingsError: a card's leases are too short for the samplers' heartbeats; or `scheduler.layers` names ratios,
            but none for a layer that has domains; or `scheduler.mix_window` is empty; or `scheduler.pool_slots` or
            `scheduler.pool_tokens` names a pool that there is not.
    """
    layers = config.scheduler.layers
    low, high = config.scheduler.mix_window
    if low >= high:
        raise SettingsError(
            f"scheduler.mix_window = [{low:g}, {high:g}] holds no score; give the lower bound first"
        )
    for card in cards.values():
        if card.timeouts.lease_s < LEAST_BEATS * config.sampler.heartbeat_s:
            raise SettingsError(
                f"domain {card.name}: timeouts.lease_s = {card.timeouts.lease_s:g} is less than {LEAST_BEATS} heartbeats of "
                f"{config.sampler.heartbeat_s:g} s, so that work would be given out twice; raise it, or lower sampler.heartbeat_s"
            )
        if layers and card.layer not in layers:
            raise SettingsError(
                f"scheduler.layers gives no ratio for layer {card.layer}, which domain {card.name} is of; add one"
            )
    for table in ("pool_slots", "pool_tokens"):
        for pool in getattr(config.scheduler, table):
            if pool not in (config.sampler.pool, *POOLS):
                known = ", ".join(sorted({config.sampler.pool, *POOLS}))
                raise SettingsError(f"scheduler.{table} names pool {pool!r}; the pools are {known}")
    return Policies(
        domains={name: _policy(card, config) for name, card in sorted(cards.items())},
        run=config.name,
        pool=config.sampler.pool,
        group_size=config.training.group_size,
        groups_per_step=config.training.groups_per_step,
        eta=config.scheduler.staleness,
        ready_cap=config.scheduler.ready_cap,
        half_life_s=config.scheduler.half_life_s,
        train_share=config.scheduler.train_share,
        verify_backlog=config.scheduler.verify_backlog,
        ended_kept_s=config.scheduler.ended_kept_s,
        ended_kept=config.scheduler.ended_kept,
        mix=config.scheduler.mix,
        layers=dict(sorted(config.scheduler.layers.items())),
        mix_floor=config.scheduler.mix_floor,
        mix_window=config.scheduler.mix_window,
        degenerate=config.trainer.degenerate,
        pool_slots=dict(sorted(config.scheduler.pool_slots.items())),
        pool_tokens=dict(sorted(config.scheduler.pool_tokens.items())),
        max_model_len=config.sampler.max_model_len,
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
        cohort=card.quota.cohort,
        borrow=card.quota.borrow,
        lend=card.quota.lend,
        slots=card.request.slots,
        retry=retry,
        ladder=card.ladder,
        deadline=card.deadline,
        timeouts=card.timeouts,
        sampling=Sampling(
            temperature=sampling.temperature, top_p=sampling.top_p, max_tokens=sampling.max_tokens
        ),
    )
