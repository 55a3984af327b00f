"""What the sampler takes from the run's configuration. Invariant: bounds follow from the settings, none is infinite."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.ids import derive
from schemas.run import Sampler
from services.runtime.settings import Process

HELD_PER_SLOT = 4
DRAIN_SHARE = 0.6
"""Share of the drain deadline for finishing groups; the rest is for handing back and saying so."""


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """Resolved settings of one sampler process."""

    worker: str
    run: str
    engine: Sampler
    capacity: int
    """Groups held at most, running and waiting."""
    window: int
    """Assignments read but not taken at most."""
    seed: int
    """Of the engine's random stream: another one for every process, since replicas must not sample the same."""
    drain_s: float


def resolve(process: Process, drain_s: float, incarnation: str) -> SamplerSettings:
    """Settings of this process; `incarnation` tells it from earlier ones of the same worker name."""
    config = process.config
    return SamplerSettings(
        worker=process.worker,
        run=config.name,
        engine=config.sampler,
        capacity=HELD_PER_SLOT * config.sampler.slots,
        window=HELD_PER_SLOT * config.sampler.slots,
        seed=int(derive("engine-seed", config.seed, process.worker, incarnation)[:8], 16) >> 1,
        drain_s=drain_s * DRAIN_SHARE,
    )
