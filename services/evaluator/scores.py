"""Held-out figures from scores. Invariant: tasks weigh the same within a domain, domains weigh the same in the mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from schemas.evaluations import DomainScore

RESAMPLES = 2000


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One decided task: scores of its valid samples."""

    domain: str
    layer: str
    greedy: bool
    scores: tuple[float, ...]
    passed: tuple[bool, ...]
    infra: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one evaluation."""

    mean: float
    low: float
    high: float
    greedy: float
    layers: dict[str, float]
    domains: tuple[DomainScore, ...]


def bootstrap(
    tasks: Sequence[Sequence[float]], rng: np.random.Generator, resamples: int = RESAMPLES
) -> np.ndarray:
    """Two-level bootstrap of the mean over tasks (resample tasks, then samples within each): `resamples` means.

    Shape of `tasks`: n tasks, each with its own number of scores. Tasks with no score are left out.
    """
    rows = [np.asarray(task, dtype=np.float64) for task in tasks if len(task)]
    if not rows:
        return np.zeros(resamples)
    drawn = np.empty((resamples, len(rows)))
    for column, row in enumerate(rows):
        drawn[:, column] = rng.choice(row, size=(resamples, len(row))).mean(axis=1)
    picks = rng.integers(0, len(rows), size=(resamples, len(rows)))
    means: np.ndarray = np.take_along_axis(drawn, picks, axis=1).mean(axis=1)
    return means


def summarise(rows: Iterable[Answered], *, seed: int) -> Summary:
    """Per-domain, per-layer and overall means with 95 % percentile-bootstrap intervals.

    Raises:
        ValueError: nothing was answered.
    """
    by_domain: dict[str, list[Answered]] = defaultdict(list)
    for row in rows:
        by_domain[row.domain].append(row)
    if not by_domain:
        raise ValueError("no task of the evaluation has a verdict")
    rng = np.random.default_rng(seed)
    domains: list[DomainScore] = []
    overall = np.zeros(RESAMPLES)
    for name in sorted(by_domain):
        sampled = [row for row in by_domain[name] if not row.greedy and row.scores]
        if not sampled:
            continue  # nothing at temperature 1: it has no mean, and must not pull the others' down
        greedy = [score for row in by_domain[name] if row.greedy for score in row.scores]
        means = bootstrap([row.scores for row in sampled], rng)
        overall += means
        task_means = [sum(row.scores) / len(row.scores) for row in sampled]
        passed = [flag for row in sampled for flag in row.passed]
        domains.append(
            DomainScore(
                domain=name,
                layer=by_domain[name][0].layer,
                tasks=len(sampled),
                samples=sum(len(row.scores) for row in sampled),
                mean=_mean(task_means),
                low=float(np.percentile(means, 2.5)),
                high=float(np.percentile(means, 97.5)),
                passed=_mean(passed),
                greedy=_mean(greedy),
                infra=sum(row.infra for row in by_domain[name]),
            )
        )
    if not domains:
        raise ValueError("no sampled task of the evaluation has a verdict")
    overall /= len(domains)
    layers: dict[str, list[float]] = defaultdict(list)
    for domain in domains:
        layers[domain.layer].append(domain.mean)
    return Summary(
        mean=_mean([domain.mean for domain in domains]),
        low=float(np.percentile(overall, 2.5)),
        high=float(np.percentile(overall, 97.5)),
        greedy=_mean([domain.greedy for domain in domains]),
        layers={layer: _mean(values) for layer, values in sorted(layers.items())},
        domains=tuple(domains),
    )


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values)) if values else 0.0
