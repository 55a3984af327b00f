"""Tokens drawn from logits, and the log-probabilities that go with them."""

from __future__ import annotations

import math

import pytest
import torch

from services.sampler.engines.sampling import choose

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_greedy_takes_the_best_token_with_its_logprob_at_temperature_one() -> None:
    tokens, logprobs = choose(LOGITS, [0.0], [1.0], generator())
    assert tokens == [0]
    assert logprobs == pytest.approx([LOGITS.log_softmax(-1)[0, 0].item()])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_logprobs_are_those_of_the_distribution_sampled_from(temperature: float) -> None:
    rows = LOGITS.repeat(4000, 1)
    tokens, logprobs = choose(rows, [temperature] * 4000, [1.0] * 4000, generator())
    expected = (LOGITS[0] / temperature).log_softmax(-1)
    assert logprobs == pytest.approx([expected[token].item() for token in tokens])
    for token in range(4):
        share = tokens.count(token) / 4000
        assert share == pytest.approx(math.exp(expected[token].item()), abs=0.03)


def test_top_p_keeps_the_smallest_set_that_reaches_it_and_renormalises() -> None:
    rows = LOGITS.repeat(500, 1)  # probabilities 0.64, 0.24, 0.09, 0.03
    tokens, logprobs = choose(rows, [1.0] * 500, [0.7] * 500, generator())
    assert set(tokens) == {0, 1}
    kept = LOGITS[0, :2].log_softmax(-1)
    assert logprobs == pytest.approx([kept[token].item() for token in tokens])


def test_each_row_has_its_own_settings() -> None:
    tokens, logprobs = choose(LOGITS.repeat(3, 1), [0.0, 1.0, 1.0], [1.0, 1e-6, 1.0], generator())
    assert tokens[:2] == [0, 0]
    assert logprobs[1] == pytest.approx(0.0)
