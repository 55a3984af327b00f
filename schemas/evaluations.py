"""Results of evaluations. Invariant: every figure names its checkpoint and how many items stand behind it."""

from __future__ import annotations

from typing import Literal

from schemas.base import Data, Event
from schemas.tasks import PolicyRef


class DomainScore(Data, frozen=True, kw_only=True):
    """Held-out result of one domain."""

    domain: str
    layer: str
    tasks: int
    samples: int
    mean: float
    """Mean score of the samples, each task weighing the same."""
    low: float
    """Lower end of the 95 % interval over tasks."""
    high: float
    passed: float
    """Share of samples that passed outright."""
    greedy: float
    """Mean score at temperature 0."""
    infra: int = 0
    """Samples without a score, left out of every figure."""


class EvaluationFinished(Event, frozen=True, kw_only=True):
    """One evaluation of one checkpoint."""

    run: str
    evaluation_id: str
    label: Literal["before", "after", "version"]
    policy: PolicyRef
    mean: float
    """Mean over domains, each weighing the same."""
    low: float
    high: float
    greedy: float
    layers: dict[str, float]
    domains: tuple[DomainScore, ...]
    seconds: float = 0.0
    complete: bool = True
    """False when some tasks had no verdict before the deadline; they are left out."""


class RegressionFound(Event, frozen=True, kw_only=True):
    """A checkpoint is worse than its baseline on something that must hold."""

    run: str
    evaluation_id: str
    policy: PolicyRef
    baseline: PolicyRef
    domain: str
    before: float
    after: float
    reason: str
