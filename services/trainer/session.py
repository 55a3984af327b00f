"""One run's training between two checkpoints.

Invariant: version n is the policy after n steps, and a session opened from a checkpoint goes on as the one that wrote it
would have. Blocking throughout; knows no broker.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence

import msgspec
import torch

from schemas.cards import Card
from schemas.tasks import PolicyRef
from services.runtime.errors import Unavailable
from services.runtime.models import default_cache, resolve_model
from services.trainer import canary as canaries
from services.trainer import examples
from services.trainer.advantages import Norm, advantages
from services.trainer.assemble import Saved
from services.trainer.checkpoint import Checkpoint, Store, TrainerRecord, assets, special_tokens
from services.trainer.group import Group
from services.trainer.learner import Learned, Learner
from services.trainer.model import load_model, pick_device
from services.trainer.schedule import learning_rate
from services.trainer.settings import Settings

RNG = "rng/torch"
log = logging.getLogger(__name__)


class Diverged(Unavailable):
    """The weights are not finite; there is nothing to publish."""


class Session:
    """Model, optimiser and counters of a run, and where they are written."""

    def __init__(
        self,
        settings: Settings,
        cards: Mapping[str, Card],
        store: Store,
        learner: Learner,
        last: Checkpoint,
    ) -> None:
        """Use `open_session`."""
        self.settings = settings
        self.record: TrainerRecord = last.record
        """Of the newest checkpoint."""
        self._cards = cards
        self._norms = {
            name: Norm(floor=card.reward.scale_floor, decay=card.reward.decay) for name, card in cards.items()
        }
        self._store = store
        self._learner = learner
        self._last = last
        self._scales = dict(last.record.scales)
        self.version = last.record.version
        self._groups: tuple[str, ...] = ()

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self._learner.model.vocabulary

    @property
    def policy(self) -> PolicyRef:
        """The newest checkpoint."""
        return self._store.policy(self.record)

    def train(self, groups: Sequence[Group]) -> dict[str, float]:
        """One step on `groups`; the figures of it. The version goes up by one even when no group had anything to teach.

        Raises:
            Diverged: a weight is NaN or infinite.
        """
        began = time.monotonic()
        settings = self.settings
        relative = advantages(
            examples.scored(groups), self._scales, self._norms, tolerance=settings.degenerate
        )
        rate = learning_rate(
            self.version,
            peak=settings.lr,
            floor=settings.lr_floor,
            warmup=settings.warmup,
            steps=settings.steps,
        )
        learned = self._learner.step(examples.units(groups, relative, self.version, self._cards), rate)
        if not all(bool(torch.isfinite(weight).all()) for weight in self._learner.model.parameters()):
            raise Diverged(
                f"step {self.version + 1}: the weights are no longer finite; lower trainer.lr and start again"
            )
        if learned.skipped:
            log.warning(
                "step %d: %d gradients were not finite and left out", self.version + 1, learned.skipped
            )
        seen = examples.figures(groups, relative, self.version, self._cards)
        self._scales = relative.scales
        self.version += 1
        self._groups = tuple(group.id for group in groups)
        return seen | _figures(learned) | {"lr": rate, "train_s": time.monotonic() - began}

    def save(
        self,
        *,
        offsets: Mapping[str, int],
        assembly: Saved,
        used_s: float,
        final: bool,
        metrics: Mapping[str, float],
    ) -> dict[str, float]:
        """Write today's version; returns `metrics` with the saving time.

        Raises:
            CheckpointError: the disk refuses.
        """
        began = time.monotonic()
        state = self._learner.state()
        state[RNG] = torch.get_rng_state()
        self._last = Checkpoint(
            weights=self._learner.model.weights(),
            optimiser=state,
            config=self._last.config,
            assets=self._last.assets,
            canary=canaries.measure(self._learner, self._last.canary),
            record=TrainerRecord(
                run=self.settings.run,
                version=self.version,
                step=self.version,
                final=final,
                used_s=used_s,
                offsets=dict(offsets),
                assembly=assembly,
                scales=self._scales,
                python_rng=self._learner.shuffle.getstate(),
                groups=self._groups,
                metrics=dict(metrics),
            ),
        )
        self.record = self._store.write(self._last)
        return {**metrics, "save_s": time.monotonic() - began}

    def finish(self) -> None:
        """Make the newest checkpoint the last of the run.

        Raises:
            CheckpointError: the disk refuses.
        """
        self.record = self._store.finish(self.record)


def open_session(settings: Settings, cards: Mapping[str, Card]) -> tuple[Session, bool]:
    """The run's session, and whether it is new: from its newest complete checkpoint, else from the base model as version 0.

    Raises:
        ModelError: the base model cannot be used.
        CheckpointError: version 0 cannot be written.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = pick_device(settings.device)
    store = Store(settings.checkpoints, settings.keep_checkpoints)
    found = store.newest()
    if found is not None:
        learner = Learner(
            load_model(store.folder(found.record.version), device), settings.hyper, seed=settings.seed
        )
        state = dict(found.optimiser)
        torch.set_rng_state(state.pop(RNG))
        learner.restore(state)
        version, words, gauss = found.record.python_rng
        learner.shuffle.setstate((version, tuple(words), gauss))
        return Session(settings, cards, store, learner, found), False
    torch.manual_seed(settings.seed)
    base = resolve_model(settings.model, default_cache())
    model = load_model(base, device)
    small = assets(base)
    fresh = Checkpoint(
        weights={},
        optimiser={},
        config=model.config.to_json_string(use_diff=False),
        assets=small,
        canary=canaries.make(model, special_tokens(model.config.to_dict(), small), settings.seed),
        record=TrainerRecord(run=settings.run, version=0, step=0),
    )
    session = Session(settings, cards, store, Learner(model, settings.hyper, seed=settings.seed), fresh)
    session.save(offsets={}, assembly=Saved(), used_s=0.0, final=settings.steps == 0, metrics={})
    return session, True


def _figures(learned: Learned) -> dict[str, float]:
    figures = {name: float(value) for name, value in msgspec.structs.asdict(learned).items()}
    return {name: value for name, value in figures.items() if math.isfinite(value)}
