"""A scheduler core with short words for what happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from schemas.cards import Ladder, Retry
from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.tasks import PolicyRef, Task, TaskSubmitted
from services.scheduler.effects import Assign, Derive, Effect, Publish
from services.scheduler.fold import fold, tick
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy
from services.scheduler.state import State
from tests.verdicts import judged

if TYPE_CHECKING:
    from schemas.assignments import AttemptAssigned
    from schemas.base import Event


class Bench:
    """One state, a clock that is set by hand, and every effect so far."""

    def __init__(self) -> None:
        self.state = State()
        self.policies = Policies(
            domains={
                "a": Policy(retry=Retry(failures=1, infra=2, backoff_s=1.0, backoff_max_s=8.0)),
                "b": Policy(retry=Retry(failures=0, infra=0), ladder=Ladder(steps=(0.5, 0.0), children=2)),
            },
            group_size=2,
            groups_per_step=4,
            eta=1,
            ready_cap=50,
        )
        self.now = 1000.0
        self.effects: list[Effect] = []

    def send(self, event: Event) -> list[Effect]:
        effects = fold(self.state, self.policies, event, self.now)
        return self._kept(effects)

    def tick(self, seconds: float = 0.0) -> list[Effect]:
        self.now += seconds
        return self._kept(tick(self.state, self.policies, self.now))

    def _kept(self, effects: list[Effect]) -> list[Effect]:
        self.effects += effects
        assert invariant(self.state) == []
        return effects

    def submit(self, name: str, domain: str = "a", **fields: Any) -> list[Effect]:
        outer = {
            key: fields.pop(key)
            for key in ("priority", "idempotency_key", "parent", "level")
            if key in fields
        }
        fields.setdefault("prompt", "2 + 2")
        return self.send(TaskSubmitted(task=Task(id=name, domain=domain, **fields), **outer))

    def derived(self) -> list[TaskSubmitted]:
        """Submit the sub-tasks that were asked for and have not come yet, made without a catalog."""
        known = self.state.live.keys() | self.state.ended.keys()
        asked = [effect for effect in self.effects if isinstance(effect, Derive)]
        made = [
            TaskSubmitted(
                task=msgspec.structs.replace(
                    effect.parent,
                    id=effect.child_id,
                    difficulty=effect.parent.difficulty if effect.difficulty is None else effect.difficulty,
                ),
                priority=effect.priority,
                parent=effect.parent.id,
                level=effect.level,
                origin=effect.origin,
                climb=effect.climb,
            )
            for effect in asked
            if effect.child_id not in known
        ]
        for event in made:
            self.send(event)
        return made

    def run(self, *scores: float | None) -> str:
        """Dispatch one task and give its group these scores; the task's id."""
        self.beat(slots=1)
        self.tick()
        name = self.assigned[-1].task.id
        self.verdicts(name, *scores)
        return name

    def beat(
        self, worker: str = "w", *, slots: int = 8, released: tuple[str, ...] = (), **fields: Any
    ) -> list[Effect]:
        reason = fields.pop("reason", "finished")
        given = fields.pop("given", ()) + tuple(Released(lease_id=lease, reason=reason) for lease in released)
        fields = {"service": "sampler", "pool": "standard"} | fields
        return self.send(WorkerHeartbeat(worker=worker, slots=slots, released=given, **fields))

    def verdict(self, task: str, index: int, score: float | None, **fields: Any) -> list[Effect]:
        entry = self.state.live.get(task)
        attempt = fields.pop("attempt", entry.attempt if entry else 1)
        lease = fields.pop("lease_id", entry.lease_id if entry else "gone")
        return self.send(judged(task, score, attempt, index, lease=lease))

    def verdicts(self, task: str, *scores: float | None) -> list[Effect]:
        return [effect for index, score in enumerate(scores) for effect in self.verdict(task, index, score)]

    def checkpoint(self, version: int, **fields: Any) -> list[Effect]:
        policy = PolicyRef(version=version, uri="v", digest="d")
        return self.send(
            CheckpointPublished(run=fields.pop("run", "run"), policy=policy, step=version, **fields)
        )

    @property
    def assigned(self) -> list[AttemptAssigned]:
        return [effect.event for effect in self.effects if isinstance(effect, Assign)]

    def phase(self, task: str) -> str:
        found = self.state.live.get(task) or self.state.ended[task]
        return found.state

    def said(self, task: str) -> list[str]:
        return [
            effect.event.state
            for effect in self.effects
            if isinstance(effect, Publish) and effect.event.task_id == task
        ]


@pytest.fixture
def bench() -> Bench:
    return Bench()
