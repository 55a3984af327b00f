"""What the trainer takes from the run's configuration. Invariant: nothing below this module knows the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from schemas.cards import Card, Timeouts
from schemas.run import RunConfig
from services.trainer.learner import Hyper
from services.trainer.loss import Clip


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one run's trainer."""

    run: str
    seed: int
    model: str
    """Folder or package of the base model, as the configuration says it."""
    folder: Path
    """Where the run keeps its things."""
    device: str
    threads: int
    steps: int
    budget_s: float
    groups_per_step: int
    lr: float
    lr_floor: float
    warmup: int
    max_staleness: int
    degenerate: float
    keep_checkpoints: int
    group_timeout_s: float
    """Quiet seconds, with no attempt under way, after which a step takes the groups that there are."""
    hyper: Hyper

    @property
    def checkpoints(self) -> Path:
        """Where the versions lie."""
        return self.folder / "checkpoints"


def silence_s(timeouts: Timeouts) -> float:
    """Seconds without a word of a group after which its attempt cannot be under way any more.

    From its first record to its last sample it has `attempt_s` at most, from there, or from its last verified stage, to its
    verdicts `verify_s`; the scheduler sees to both within a lease. Each record of the group is a word, stages among them.
    """
    return timeouts.attempt_s + timeouts.verify_s + timeouts.lease_s


def silences(cards: Mapping[str, Card]) -> dict[str, float]:
    """The same by domain."""
    return {name: silence_s(card.timeouts) for name, card in cards.items()}


def of(config: RunConfig, folder: Path) -> Settings:
    """The trainer's settings in a run's configuration."""
    trainer, training = config.trainer, config.training
    return Settings(
        run=config.name,
        seed=config.seed,
        model=config.model.path,
        folder=folder,
        device=trainer.device,
        threads=trainer.threads,
        steps=training.steps,
        budget_s=training.budget_s,
        groups_per_step=training.groups_per_step,
        lr=trainer.lr,
        lr_floor=trainer.lr_floor,
        warmup=trainer.warmup,
        max_staleness=trainer.max_staleness,
        degenerate=trainer.degenerate,
        keep_checkpoints=trainer.keep_checkpoints,
        group_timeout_s=trainer.group_timeout_s,
        hyper=Hyper(
            betas=(trainer.beta1, trainer.beta2),
            weight_decay=trainer.weight_decay,
            grad_clip=trainer.grad_clip,
            clip=Clip(low=trainer.clip_low, high=trainer.clip_high, cap=trainer.tis_cap),
            minibatches=trainer.minibatches,
            row_tokens=trainer.row_tokens,
        ),
    )
