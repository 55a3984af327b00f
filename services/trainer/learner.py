"""The policy and its optimiser. Invariant: the same state and the same groups give the same weights, bit for bit, on a CPU.

Blocking: a step runs where it is called; the service calls it in a worker thread.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from services.trainer.batch import Answer, Micro, Unit, layout, pack
from services.trainer.loss import Clip, policy_loss, token_logprobs
from services.trainer.model import LanguageModel


class Hyper(msgspec.Struct, frozen=True, kw_only=True):
    """What a step needs of the run's settings."""

    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    grad_clip: float = 1.0
    clip: Clip = Clip()
    minibatches: int = 1
    row_tokens: int = 4096


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one step; those of the policy are over the tokens of samples that had an advantage."""

    loss: float = 0.0
    grad_norm: float = 0.0
    """Before clipping; of the last gradient step."""
    entropy: float = 0.0
    """Nats a token."""
    kl: float = 0.0
    """Estimate of KL(mu || pi_theta): mean of exp(d) - 1 - d, d = log pi_theta - log mu."""
    ratio_max: float = 0.0
    """Largest pi_theta / mu."""
    weight_capped: float = 0.0
    """Share of tokens whose importance weight was truncated."""
    clipped: float = 0.0
    """Share of tokens whose gradient the clip took."""
    logprob_diff_mean: float = 0.0
    """Mean |log pi_theta - log mu| over tokens that this very policy sampled: what differs there is the engine."""
    logprob_diff_max: float = 0.0
    fresh_tokens: int = 0
    tokens: int = 0
    """Trained tokens of the batch, those without advantage included."""
    gradient_steps: int = 0
    skipped: int = 0
    """Gradient steps left out because the gradient was not finite."""


class _Figures:
    """Sums over the micro-batches of a step."""

    def __init__(self) -> None:
        self.tokens = self.fresh = 0
        self.entropy = self.kl = self.capped = self.clipped = self.diff = 0.0
        self.ratio_max = self.diff_max = 0.0

    def add(
        self, logp: Tensor, micro: Micro, *, entropy: Tensor, clipped: Tensor, weight: Tensor, cap: float
    ) -> None:
        gap = logp.detach() - micro.mu
        ratio = torch.exp(gap.clamp(-20.0, 20.0))
        self.tokens += gap.numel()
        self.entropy += float(entropy.sum())
        self.kl += float((ratio - 1.0 - gap).sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        self.capped += float((weight >= cap).sum())
        self.clipped += float(clipped.sum())
        on_version = gap[micro.fresh].abs()
        if on_version.numel():
            self.fresh += on_version.numel()
            self.diff += float(on_version.sum())
            self.diff_max = max(self.diff_max, float(on_version.max()))


class Learner:
    """A model, AdamW, and the random state that orders minibatches."""

    def __init__(self, model: LanguageModel, hyper: Hyper, *, seed: int) -> None:
        self.model = model
        self.hyper = hyper
        self.shuffle = random.Random(seed)
        # Fused is the fastest form; all of them update element by element, so bits do not depend on the choice of threads.
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=hyper.betas, weight_decay=hyper.weight_decay, fused=True
        )

    def step(self, units: Sequence[Unit], lr: float) -> Learned:
        """One batch: `hyper.minibatches` gradient steps at rate `lr`.

        Units whose every advantage is zero count in the token mean and are not computed: their gradient is exactly zero.
        With several minibatches the proximal policy is the one before the first gradient step.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        total = sum(unit.trained for unit in units)
        telling = [unit for unit in units if any(answer.advantage != 0.0 for answer in unit.answers)]
        if not telling:
            return Learned(tokens=total)
        portions = self._portions(telling)
        # Every token of the batch counts once: silent tokens are spread over the minibatches by their share of the others.
        spoken = sum(unit.trained for unit in telling)
        figures = _Figures()
        loss, norm, done, skipped = 0.0, 0.0, 0, 0
        packed = [self._pack(portion) for portion in portions]
        prox = [[self._prox(micro) for micro in micros] for micros in packed] if len(packed) > 1 else None
        for number, micros in enumerate(packed):
            share = sum(unit.trained for unit in portions[number]) / spoken
            self.optimiser.zero_grad(set_to_none=True)
            for index, micro in enumerate(micros):
                anchor = None if prox is None else prox[number][index]
                loss += self._backward(micro, total * share, anchor, figures) * share
            gradient = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.hyper.grad_clip))
            if not math.isfinite(gradient):
                skipped += 1
                continue
            self.optimiser.step()
            norm, done = gradient, done + 1
        self.optimiser.zero_grad(set_to_none=True)
        seen = max(1, figures.tokens)
        return Learned(
            loss=loss,
            grad_norm=norm,
            entropy=figures.entropy / seen,
            kl=figures.kl / seen,
            ratio_max=figures.ratio_max,
            weight_capped=figures.capped / seen,
            clipped=figures.clipped / seen,
            logprob_diff_mean=figures.diff / max(1, figures.fresh),
            logprob_diff_max=figures.diff_max,
            fresh_tokens=figures.fresh,
            tokens=total,
            gradient_steps=done,
            skipped=skipped,
        )

    def logprobs(
        self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Log-probability of every token of each answer after its prompt, at temperature 1."""
        units = [
            Unit(
                prompt=tuple(prompt),
                answers=(Answer(tokens=tuple(answer), mu=(0.0,) * len(answer), advantage=0.0),),
            )
            for prompt, answer in zip(prompts, answers, strict=True)
        ]
        micro = layout([[unit] for unit in units], max(unit.length for unit in units)).to(self.model.device)
        flat = [float(value) for value in self._prox(micro)]
        ends = list(itertools.accumulate(len(answer) for answer in answers))
        return [flat[end - len(answer) : end] for end, answer in zip(ends, answers, strict=True)]

    def state(self) -> dict[str, Tensor]:
        """The optimiser's tensors by `<kind>/<parameter>`, on the CPU; parameters that never had a gradient are absent."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self.model.named_parameters():
            for kind, value in self.optimiser.state.get(parameter, {}).items():
                tensors[f"{kind}/{name}"] = value.detach().cpu().clone()
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the optimiser's state.

        Raises:
            KeyError: a tensor of a parameter the model does not have.
        """
        parameters = dict(self.model.named_parameters())
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            parameter = parameters[name]
            state: dict[str, Any] = self.optimiser.state[parameter]
            state[kind] = value.to(parameter.device).clone()

    def _portions(self, units: Sequence[Unit]) -> list[list[Unit]]:
        count = min(self.hyper.minibatches, len(units))
        if count == 1:
            return [list(units)]
        order = list(units)
        self.shuffle.shuffle(order)
        return [order[start::count] for start in range(count)]

    def _pack(self, units: Sequence[Unit]) -> list[Micro]:
        return [micro.to(self.model.device) for micro in pack(units, self.hyper.row_tokens)]

    def _prox(self, micro: Micro) -> Tensor:
        with torch.no_grad():
            return token_logprobs(self.model.logits(micro), micro.targets, micro.temperature)[0]

    def _backward(self, micro: Micro, tokens: float, prox: Tensor | None, figures: _Figures) -> float:
        logp, entropy = token_logprobs(self.model.logits(micro), micro.targets, micro.temperature)
        terms = policy_loss(logp, micro.mu, micro.advantage, tokens, self.hyper.clip, prox=prox)
        torch.autograd.backward(terms.loss)
        figures.add(
            logp, micro, entropy=entropy, clipped=terms.clipped, weight=terms.weight, cap=self.hyper.clip.cap
        )
        return float(terms.loss.detach())
