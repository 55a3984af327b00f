"""Choosing tokens from logits. Invariant: the log-probability returned is that of the distribution the token was drawn from."""

from __future__ import annotations

import torch

GREEDY = 1e-5
"""Temperatures below this are greedy, as in vLLM."""


def choose(
    logits: torch.Tensor, temperatures: list[float], top_ps: list[float], random: torch.Generator
) -> tuple[list[int], list[float]]:
    """One token a row of `logits` [rows, vocabulary], and its log-probability.

    Rows with a temperature of 0 take the most probable token, with its log-probability at temperature 1. Otherwise logits are
    divided by the temperature and cut to the nucleus: the smallest set of most probable tokens whose sum reaches top_p
    (Holtzman et al. 2020), renormalised.
    """
    temperature = torch.tensor(temperatures, device=logits.device)
    greedy = temperature < GREEDY
    scaled = logits / torch.where(greedy, torch.ones_like(temperature), temperature)[:, None]
    top_p = torch.tensor(top_ps, device=logits.device)
    cut = ~greedy & (top_p < 1.0)
    if bool(cut.any()):
        ordered, places = scaled.sort(dim=-1, descending=True)
        probability = ordered.softmax(-1)
        before = probability.cumsum(-1) - probability
        drop = torch.zeros_like(before, dtype=torch.bool).scatter(1, places, before >= top_p[:, None])
        scaled = scaled.masked_fill(drop & cut[:, None], float("-inf"))
    logprobs = scaled.log_softmax(-1)
    drawn = torch.multinomial(logprobs.exp(), 1, generator=random)[:, 0]
    tokens = torch.where(greedy, logprobs.argmax(-1), drawn)
    return tokens.tolist(), logprobs.gather(1, tokens[:, None])[:, 0].tolist()
