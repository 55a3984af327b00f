"""Held-out figures: means, intervals, weights."""

from __future__ import annotations

import numpy as np
import pytest

from services.evaluator.scores import Answered, bootstrap, summarise


def answered(
    domain: str, scores: tuple[float, ...], *, greedy: bool = False, layer: str = "tool"
) -> Answered:
    return Answered(
        domain=domain,
        layer=layer,
        greedy=greedy,
        scores=scores,
        passed=tuple(score == 1.0 for score in scores),
    )


def test_tasks_weigh_the_same_whatever_their_number_of_valid_samples() -> None:
    rows = [answered("a", (1.0,)), answered("a", (0.0, 0.0, 0.0))]
    assert summarise(rows, seed=1).domains[0].mean == pytest.approx(0.5)


def test_domains_weigh_the_same_and_layers_are_their_means() -> None:
    rows = [
        answered("a", (1.0, 1.0)),
        answered("b", (0.0, 0.0)),
        answered("b", (0.0,)),
        answered("c", (0.5,), layer="domain"),
    ]
    summary = summarise(rows, seed=1)
    assert summary.mean == pytest.approx(0.5)
    assert summary.layers == {"domain": pytest.approx(0.5), "tool": pytest.approx(0.5)}


def test_greedy_answers_stay_out_of_the_sampled_mean() -> None:
    summary = summarise([answered("a", (0.0, 0.0)), answered("a", (1.0,), greedy=True)], seed=1)
    assert (summary.mean, summary.greedy) == (0.0, 1.0)


def test_the_interval_covers_the_mean_and_has_width() -> None:
    rows = [answered("a", (float(n % 2), 0.5)) for n in range(12)]
    row = summarise(rows, seed=3).domains[0]
    assert row.low < row.mean < row.high
    assert row.high - row.low < 0.5


def test_the_interval_of_a_fair_coin_is_as_wide_as_theory_says() -> None:
    rng = np.random.default_rng(0)
    means = bootstrap([[float(n % 2)] for n in range(100)], rng, resamples=4000)
    assert float(np.std(means)) == pytest.approx(0.05, rel=0.1)


def test_the_same_seed_gives_the_same_figures() -> None:
    rows = [answered("a", (float(n % 3 == 0), 0.2)) for n in range(9)]
    assert summarise(rows, seed=5) == summarise(rows, seed=5)


def test_nothing_answered_is_an_error() -> None:
    with pytest.raises(ValueError, match="no task"):
        summarise([], seed=1)
