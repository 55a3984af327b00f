"""What the trainer takes from the run's configuration. Invariant: nothing below this module knows the configuration file."""

from __future__ import annotations

from pathlib import Path

import msgspec

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
    hyper: Hyper

    @property
    def checkpoints(self) -> Path:
        """Where the versions lie."""
        return self.folder / "checkpoints"


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
