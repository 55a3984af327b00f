"""What a base build can be told. Invariant: the values here made the weights that ship."""

from __future__ import annotations

import math

import msgspec


class Mixture(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of right and wrong demonstrations; they sum to 1.

    The base must know the right answer as one behaviour of several: it then scores low when sampled, yet a
    group of eight nearly always holds a right answer, so reinforcement has something to select.
    """

    right: float = 0.25
    slip: float = 0.57
    argument: float = 0.10
    """The right form with one name or number of the prompt replaced."""
    noise: float = 0.08
    """The right answer with one character changed."""

    def __post_init__(self) -> None:
        if not math.isclose(self.right + self.slip + self.argument + self.noise, 1.0):
            raise ValueError("mixture: right, slip, argument and noise must sum to 1")


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the training loop."""

    seed: int = 1
    steps: int = 2400
    rows: int = 32
    """Rows a step."""
    row_tokens: int = 128
    """Fixed length of a row; samples are packed into it, each attending to itself only."""
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    mixture: Mixture = Mixture()
    double_layers: tuple[str, ...] = ("long_horizon",)
    """Layers whose domains get two shares of the demonstrations."""
