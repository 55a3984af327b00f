"""What the live view shows, as a fold over events. Invariant: pure; the screen is a function of this state and the clock."""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from schemas.base import Event
from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import EvaluationFinished
from schemas.heartbeats import WorkerHeartbeat
from schemas.rewards import TrajectoryVerified
from schemas.states import TERMINAL, TaskState

RATE_WINDOW_S = 20.0
HISTORY = 400


class Beat(msgspec.Struct):
    """Last sign of life of a worker."""

    at: float
    heartbeat: WorkerHeartbeat


class View(msgspec.Struct):
    """State of the live view."""

    states: dict[str, str] = {}
    """Task id -> state, of live tasks; terminal ones are only counted."""
    ended: Counter[str] = msgspec.field(default_factory=Counter)
    version: int = -1
    final: bool = False
    metrics: dict[str, float] = {}
    rewards: list[tuple[int, float]] = []
    """(version, mean reward of its batch)."""
    layers: dict[str, list[float]] = {}
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    cached: int = 0
    verdict_times: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=20_000))
    workers: dict[str, Beat] = {}
    evaluations: dict[str, EvaluationFinished] = {}
    losses: int = 0
    begun: Counter[str] = msgspec.field(default_factory=Counter)
    """By domain: training tasks, sub-tasks aside, that had their first lease."""

    def live(self) -> Counter[str]:
        """Live tasks by state."""
        return Counter(self.states.values())

    def rate(self, now: float) -> float:
        """Verdicts a second over the last window."""
        while self.verdict_times and self.verdict_times[0] < now - RATE_WINDOW_S:
            self.verdict_times.popleft()
        return len(self.verdict_times) / RATE_WINDOW_S

    def leases(self, now: float) -> int:
        """Leases that live samplers name."""
        return sum(
            len(beat.heartbeat.leases)
            for beat in self.workers.values()
            if beat.heartbeat.service == "sampler" and now - beat.at < RATE_WINDOW_S
        )


def observe(view: View, event: Event, at: float) -> None:
    """Fold one event, read at record time `at`, into the view."""
    match event:
        case TaskState():
            known = view.states.pop(event.task_id, None)
            if event.state in TERMINAL:
                view.ended[event.state] += 1
            else:
                view.states[event.task_id] = event.state
            if known is not None and event.state == "backoff" and event.losses:
                view.losses += 1
            if known in {None, "ready"} and event.attempt == 1 and event.state != "ready":
                view.begun[event.domain] += event.purpose == "train" and not event.parent
        case TrajectoryVerified():
            view.outcomes[event.verdict.outcome if event.content else "abandoned"] += 1
            view.cached += event.cached
            view.verdict_times.append(at)
        case CheckpointPublished():
            _advance(view, event)
        case WorkerHeartbeat(ended=how) if how:
            view.workers.pop(event.worker, None)
        case WorkerHeartbeat():
            view.workers[event.worker] = Beat(at=at, heartbeat=event)
        case EvaluationFinished():
            view.evaluations[event.label] = event
        case _:
            pass


def _advance(view: View, event: CheckpointPublished) -> None:
    view.final = view.final or event.final
    if event.policy.version <= view.version:
        return  # published again after a restart
    view.version = event.policy.version
    view.metrics = event.metrics
    if "reward_mean" in event.metrics:
        view.rewards.append((event.policy.version, event.metrics["reward_mean"]))
        del view.rewards[:-HISTORY]
    for name, value in event.metrics.items():
        if name.startswith("layer/"):
            series = view.layers.setdefault(name.removeprefix("layer/"), [])
            series.append(value)
            del series[:-HISTORY]
