"""The policy loss. Invariant: one token count for the whole batch, so no split, order, padding or packing changes the gradient.

Clipped surrogate with an asymmetric range (DAPO, "clip-higher") on pi_theta / pi_prox, times the truncated importance weight
min(pi_prox / mu, cap) against the policy mu that sampled the token (decoupled PPO, AReaL; truncation as in TIS). mu comes
from the sampler's log, never from a second forward pass.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

EXPONENT_LIMIT = 20.0
"""Bound on a log-ratio before exponentiation: beyond it a ratio is clipped or truncated anyway, and exp must not overflow."""


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the update."""

    low: float = 0.2
    high: float = 0.28
    cap: float = 2.0
    """Largest importance weight."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch's share of the loss and what its figures need; tensors of shape [its trained tokens]."""

    loss: Tensor
    """Scalar; the sum over all micro-batches is the loss of the batch."""
    ratio: Tensor
    """pi_theta / pi_prox, detached."""
    weight: Tensor
    """Truncated importance weight, detached."""
    clipped: Tensor
    """Whether the clip took the gradient away."""


def policy_loss(
    logp: Tensor, mu: Tensor, advantage: Tensor, tokens: float, clip: Clip, *, prox: Tensor | None = None
) -> Terms:
    """Sum over tokens of -w * min(r * A, clip(r, 1 - low, 1 + high) * A), divided by `tokens`.

    Args:
        logp: log pi_theta of the trained tokens, with gradient, [n].
        mu: log-probability under the sampling policy, [n].
        advantage: advantage of each token's sample, [n].
        tokens: trained tokens of the whole batch (not of this micro-batch), tokens with zero advantage included.
        clip: bounds.
        prox: log pi_prox, [n]; None when the batch is one gradient step, where it equals `logp` without its gradient.

    Raises:
        ValueError: `tokens` is not positive, or the shapes differ.
    """
    if tokens <= 0:
        raise ValueError(f"the batch has {tokens} tokens; a loss needs at least one")
    if not logp.shape == mu.shape == advantage.shape or (prox is not None and prox.shape != logp.shape):
        raise ValueError("logp, mu, advantage and prox must have one entry a trained token")
    anchor = logp.detach() if prox is None else prox
    ratio = torch.exp((logp - anchor).clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT))
    weight = torch.exp((anchor - mu).clamp(-EXPONENT_LIMIT, EXPONENT_LIMIT)).clamp(max=clip.cap).detach()
    bounded = ratio.clamp(1.0 - clip.low, 1.0 + clip.high)
    free, held = ratio * advantage, bounded * advantage
    loss = -(weight * torch.minimum(free, held)).sum() / tokens
    return Terms(loss=loss, ratio=ratio.detach(), weight=weight, clipped=(held < free).detach())


def token_logprobs(logits: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each target, and the entropy (nats, without gradient) of each distribution.

    Args:
        logits: [n, vocabulary].
        targets: token ids, [n].
        temperature: what each token was sampled at, [n]; log-probabilities in the log are of the tempered distribution.
    """
    scaled = torch.log_softmax(logits.float() / temperature[:, None], dim=-1)
    with torch.no_grad():
        entropy = -(scaled.exp() * scaled).sum(-1)
    return scaled.gather(-1, targets[:, None]).squeeze(-1), entropy
