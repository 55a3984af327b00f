"""Collects the verdicts of an evaluation. Invariant: each trajectory counts once, and one usable attempt a task decides."""

from __future__ import annotations

from schemas.rewards import TrajectoryVerified
from schemas.verdicts import usable
from services.evaluator.plan import Item
from services.evaluator.scores import Answered


class Collection:
    """Verdicts by task and attempt, until every task has a usable attempt."""

    def __init__(self, items: list[Item]) -> None:
        self._items = {item.submitted.task.id: item for item in items}
        self._attempts: dict[tuple[str, int], dict[int, TrajectoryVerified]] = {}
        self._decided: dict[str, int] = {}

    def add(self, verified: TrajectoryVerified) -> None:
        """Take a verdict; one that belongs to no task of this evaluation, or comes twice, changes nothing."""
        item = self._items.get(verified.task_id)
        if item is None or verified.task_id in self._decided:
            return
        members = self._attempts.setdefault((verified.task_id, verified.attempt), {})
        members.setdefault(verified.index, verified)
        valid = sum(1 for member in members.values() if member.verdict.score is not None)
        if len(members) == item.samples and usable(valid, item.samples):
            self._decided[verified.task_id] = verified.attempt

    def complete(self) -> bool:
        """Whether every task is decided."""
        return len(self._decided) == len(self._items)

    @property
    def progress(self) -> tuple[int, int]:
        """Tasks decided, tasks asked."""
        return len(self._decided), len(self._items)

    def answered(self) -> list[Answered]:
        """The decided tasks with the scores of their valid members."""
        rows = []
        for task_id, attempt in self._decided.items():
            item = self._items[task_id]
            verdicts = [member.verdict for _, member in sorted(self._attempts[task_id, attempt].items())]
            rows.append(
                Answered(
                    domain=item.domain,
                    layer=item.layer,
                    greedy=item.greedy,
                    scores=tuple(verdict.score for verdict in verdicts if verdict.score is not None),
                    passed=tuple(verdict.passed for verdict in verdicts if verdict.score is not None),
                    infra=sum(1 for verdict in verdicts if verdict.score is None),
                )
            )
        return rows
