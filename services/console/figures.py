"""Figures of a run, as a fold over its log. Invariant: every number of a report is counted from events."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

from schemas.base import Event
from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import EvaluationFinished
from schemas.rewards import TrajectoryVerified
from schemas.states import TERMINAL, TaskState
from schemas.tasks import TaskSubmitted
from schemas.trajectories import TrajectoryAbandoned, TrajectoryCompleted
from schemas.verdicts import Verdict

EXAMPLES_A_DOMAIN = 2


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One sample for the report: what was asked, answered and judged."""

    domain: str
    when: str
    prompt: str
    answer: str
    verdict: Verdict
    version: int


class Figures(msgspec.Struct):
    """State of the fold."""

    events: Counter[str] = msgspec.field(default_factory=Counter)
    submitted: set[str] = msgspec.field(default_factory=set)
    states: dict[str, str] = {}
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    verified: set[str] = msgspec.field(default_factory=set)
    completed: set[str] = msgspec.field(default_factory=set)
    duplicates: int = 0
    abandoned: int = 0
    executed: int = 0
    cached: int = 0
    steps: list[CheckpointPublished] = []
    evaluations: dict[str, EvaluationFinished] = {}
    seconds: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    tokens: int = 0
    first: dict[str, list[TrajectoryCompleted]] = {}
    last: dict[str, list[TrajectoryCompleted]] = {}
    verdicts: dict[str, Verdict] = {}


def add(figures: Figures, topic: str, event: Event) -> None:
    """Fold one record of `topic` (without prefix)."""
    figures.events[topic] += 1
    match event:
        case TaskSubmitted():
            figures.submitted.add(event.task.id)
        case TaskState():
            figures.states[event.task_id] = event.state
        case TrajectoryCompleted():
            if event.trajectory_id in figures.completed:
                figures.duplicates += 1
                return
            figures.completed.add(event.trajectory_id)
            figures.tokens += len(event.token_ids)
            figures.seconds["sampling"] += event.duration_s
            figures.seconds["waiting for a sampler slot"] += event.queued_s
            _remember(figures, event)
        case TrajectoryAbandoned():
            figures.abandoned += 1
        case TrajectoryVerified():
            if event.trajectory_id in figures.verified:
                figures.duplicates += 1
                return
            figures.verified.add(event.trajectory_id)
            # A verdict on no sample stands for one that was given up, mostly on cancellation: not a fault of a verifier.
            figures.outcomes[event.verdict.outcome if event.content else "abandoned"] += 1
            figures.cached += event.cached
            figures.executed += not event.cached
            figures.seconds["verifying"] += event.duration_s
            figures.seconds["waiting for a verifier slot"] += event.queued_s
            figures.verdicts[event.trajectory_id] = event.verdict
        case CheckpointPublished():
            if not any(step.policy.version == event.policy.version for step in figures.steps):
                figures.steps.append(event)
                for name in ("wait_s", "train_s", "save_s"):
                    figures.seconds[f"trainer {name.removesuffix('_s')}"] += event.metrics.get(name, 0.0)
        case EvaluationFinished():
            figures.evaluations.setdefault(event.label, event)
        case _:
            pass


def _remember(figures: Figures, event: TrajectoryCompleted) -> None:
    first = figures.first.setdefault(event.task.domain, [])
    if len(first) < EXAMPLES_A_DOMAIN and event.task.purpose == "train":
        first.append(event)
    if event.task.purpose == "train":
        last = figures.last.setdefault(event.task.domain, [])
        last.append(event)
        del last[:-EXAMPLES_A_DOMAIN]


def examples(figures: Figures) -> list[Example]:
    """Early and late training samples of every domain, with their verdicts."""
    rows = []
    for domain in sorted(figures.first):
        for when, events in (("early", figures.first[domain]), ("late", figures.last.get(domain, []))):
            for event in events:
                verdict = figures.verdicts.get(event.trajectory_id)
                if verdict is not None:
                    rows.append(
                        Example(
                            domain=domain,
                            when=when,
                            prompt=event.task.prompt,
                            answer=event.text,
                            verdict=verdict,
                            version=max((span.version for span in event.spans), default=0),
                        )
                    )
    return rows


def lost(figures: Figures) -> int:
    """Submitted tasks that are in no terminal state: 0 once a run has settled."""
    return sum(1 for task in figures.submitted if figures.states.get(task) not in TERMINAL)


def summary(
    figures: Figures, *, seed: int, wall_s: float, restarts: dict[str, int], replay: dict[str, Any]
) -> dict[str, Any]:
    """The content of `report.json`."""
    before, after = figures.evaluations.get("before"), figures.evaluations.get("after")
    per_domain: dict[str, Any] = {}
    for label, evaluation in (("before", before), ("after", after)):
        for row in evaluation.domains if evaluation else ():
            entry = per_domain.setdefault(row.domain, {"layer": row.layer})
            entry[label] = {
                "mean": round(row.mean, 4),
                "interval": [round(row.low, 4), round(row.high, 4)],
                "greedy": round(row.greedy, 4),
                "passed": round(row.passed, 4),
                "tasks": row.tasks,
                "samples": row.samples,
            }
    steps = sorted(figures.steps, key=lambda step: step.policy.version)
    trained = Counter(group for step in steps for group in step.groups)
    return {
        "seed": seed,
        "wall_s": round(wall_s, 1),
        "steps": max((step.step for step in steps), default=0),
        "heldout": {
            "before": round(before.mean, 4) if before else None,
            "after": round(after.mean, 4) if after else None,
            "before_interval": [round(before.low, 4), round(before.high, 4)] if before else None,
            "after_interval": [round(after.low, 4), round(after.high, 4)] if after else None,
            "before_greedy": round(before.greedy, 4) if before else None,
            "after_greedy": round(after.greedy, 4) if after else None,
            "complete": all(evaluation.complete for evaluation in (before, after) if evaluation),
            "per_domain": per_domain,
        },
        "events": dict(sorted(figures.events.items())),
        "outcomes": dict(sorted(figures.outcomes.items())),
        "tasks": dict(
            sorted(Counter(figures.states.get(task, "live") for task in figures.submitted).items())
        ),
        "lost": lost(figures),
        "duplicates_ignored": figures.duplicates,
        "abandoned": figures.abandoned,
        "verdicts": {"executed": figures.executed, "cached": figures.cached},
        "tokens": figures.tokens,
        "groups_trained": len(trained),
        "groups_trained_twice": sum(count - 1 for count in trained.values()),
        "seconds": {name: round(value, 1) for name, value in sorted(figures.seconds.items())},
        "restarts": restarts,
        "replay": replay,
    }
