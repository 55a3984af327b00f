"""The second set of books: attempts, their verdicts, and the leases that ended. Invariant: kept from the inputs alone.

What the fold says of groups, scores and leases is held against it. A verdict counts here if it came while the lease of its
attempt was good, the first of each member of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import WorkerHeartbeat
from schemas.rewards import TrajectoryVerified
from schemas.states import TaskState
from schemas.tasks import TaskCancelled
from schemas.verdicts import usable
from services.runtime.wire import Record
from services.scheduler.effects import Assign, Effect, Revoke
from services.scheduler.policies import Policies
from services.scheduler.state import State
from tests.chaos.suite.findings import Audit, Loss

EXACT = 1e-12
"""Scores are means of the same numbers in the same order, or nearly."""
PASSED_OVER = (
    *("verdict_of_ended_task", "verdict_of_unknown_task", "verdict_of_other_attempt", "verdict_out_of_range"),
    "duplicate_verdict",
)
"""Causes under which the fold counts a verdict that it does not take."""


class Attempt(msgspec.Struct, kw_only=True):
    """What the log says of one attempt."""

    task: str
    number: int
    size: int
    train: bool
    scores: dict[int, float | None] = {}

    @property
    def valid(self) -> list[float]:
        """Scores of the members that were measured."""
        return [score for score in self.scores.values() if score is not None]


class Books:
    """Of one shard."""

    def __init__(self, policies: Policies, found: Audit) -> None:
        self._policies, self._found = policies, found
        self.domains: dict[str, str] = {}
        """By lease."""
        self.assigned: dict[str, Attempt] = {}
        """By lease: every attempt that was ever given out."""
        self.complete: dict[tuple[str, int], float] = {}
        """Mean score of the attempts whose verdicts are all in, by task and number."""
        self._open: dict[str, Attempt] = {}
        """By lease: attempts under way, as of the last entry."""
        self._gone: set[str] = set()
        """Leases that have ended."""
        self._named: dict[str, tuple[str, int]] = {}
        """By lease: the worker that named it last, and its process."""
        self._returned: set[str] = set()
        """Leases whose samples are out: they end with no worker."""
        self._processes: dict[str, tuple[int, float]] = {}
        """By worker: id and start of the process that was heard last."""
        self._verdicts = self._taken = 0
        self._accepted = 0

    def heard(self, record: Record, state: State) -> None:
        """An input, before its entry is folded into `state`."""
        match record.event:
            case TrajectoryVerified() as verdict:
                self._verdict(verdict)
            case TaskCancelled() as cancelled:
                for lease, attempt in list(self._open.items()):
                    entry = state.live[attempt.task]
                    if attempt.task == cancelled.task_id or (
                        cancelled.batch and entry.batch == cancelled.batch
                    ):
                        del self._open[lease]
            case CheckpointPublished() as published if published.run == self._policies.run:
                if published.policy.version >= state.meta.version:
                    least = published.policy.version * self._policies.groups_per_step
                    self._accepted = max(self._accepted, least)
            case WorkerHeartbeat() as beat:
                self._beat(beat)

    def _beat(self, beat: WorkerHeartbeat) -> None:
        """A lease ends with the process that held it, before the verdicts that are read together with that."""
        pid, started_at = self._processes.get(beat.worker, (0, 0.0))
        if beat.ended:
            if beat.worker in self._processes and (not beat.pid or not pid or beat.pid == pid):
                del self._processes[beat.worker]
                self._ends_with(beat.worker, ())
            return
        if 0.0 < started_at < beat.started_at:
            self._ends_with(beat.worker, beat.leases)
        self._processes[beat.worker] = beat.pid, beat.started_at
        self._named |= dict.fromkeys(beat.leases, (beat.worker, beat.pid))
        for given in beat.released:
            if given.reason == "killed" or given.company:
                if given.lease_id not in self._returned:
                    self._open.pop(given.lease_id, None)
            else:
                self._returned.add(given.lease_id)

    def _ends_with(self, worker: str, kept: Iterable[str]) -> None:
        for lease in [*self._open]:
            held = self._named.get(lease, ("", 0))[0] == worker and lease not in self._returned
            if held and lease not in kept:
                del self._open[lease]

    def _verdict(self, verdict: TrajectoryVerified) -> None:
        if self._policies.shards > 1 and not self._policies.owns(verdict.domain):
            return
        self._verdicts += 1
        attempt = self._open.get(verdict.lease_id)
        if (
            attempt is None
            or (attempt.task, attempt.number) != (verdict.task_id, verdict.attempt)
            or not 0 <= verdict.index < attempt.size
            or verdict.index in attempt.scores
        ):
            return
        self._taken += 1
        outcome = verdict.verdict
        attempt.scores[verdict.index] = None if outcome.outcome == "infra" else outcome.score
        if len(attempt.scores) == attempt.size:
            del self._open[verdict.lease_id]
            if usable(len(attempt.valid), attempt.size):
                self._accepted += attempt.train
                self.complete[attempt.task, attempt.number] = sum(attempt.valid) / len(attempt.valid)

    def gave(self, effects: Iterable[Effect]) -> None:
        """What an entry gave out and took back."""
        for effect in effects:
            if isinstance(effect, Revoke) and effect.event.reason == "expired":
                if named := self._named.get(effect.event.lease_id):
                    self._found.lost.append(Loss(effect.event.lease_id, *named))
                continue
            if not isinstance(effect, Assign):
                continue
            event = effect.event
            if event.lease_id in self.assigned:
                self._found.find(2, f"lease {event.lease_id} of {event.task.id} is given out twice")
            last = [a.number for a in self._open.values() if a.task == event.task.id]
            if last and last[0] >= event.attempt:
                self._found.find(2, f"{event.task.id} goes from attempt {last[0]} to {event.attempt}")
            self.domains[event.lease_id] = event.task.domain
            self.assigned[event.lease_id] = Attempt(
                task=event.task.id,
                number=event.attempt,
                size=event.group_size,
                train=event.task.purpose == "train",
            )

    def scored(self, said: TaskState) -> None:
        """A result is that of one attempt: the last one, with the verdicts that came in time."""
        self._found.check(2, "results scored")
        scored = self.complete.get((said.task_id, said.attempt))
        if scored is None:
            partial = [
                a for a in self.assigned.values() if (a.task, a.number) == (said.task_id, said.attempt)
            ]
            valid = [score for attempt in partial for score in attempt.valid]
            scored = sum(valid) / len(valid) if valid else None
        if said.score is None or scored is None or abs(said.score - scored) > EXACT:
            self._found.find(
                2,
                f"{said.task_id} ended {said.state} with score {said.score} at attempt {said.attempt}, "
                f"its verdicts say {scored}",
            )

    def after(self, where: str, state: State) -> None:
        """Hold the folded state against the books, and carry them on."""
        if self._accepted != state.meta.accepted:
            self._found.find(
                2,
                f"{where}: {state.meta.accepted} groups are counted, "
                f"{self._accepted} were completed while their lease was good",
            )
            self._accepted = state.meta.accepted
        known = self._known(where)
        self._open = {
            lease: self.assigned[lease] for lease, task in state.leases.items() if known(lease, task)
        }
        ended = self.assigned.keys() - self._open.keys() - state.leases.keys()
        if back := self._gone & state.leases.keys():
            self._found.find(1, f"{where}: lease {min(back)} had ended and is back")
        self._found.check(1, "attempts ended", len(ended - self._gone))
        self._gone |= ended

    def end(self, state: State) -> None:
        """Every verdict was taken into its attempt, or is counted as one that changed nothing."""
        counted = sum(state.meta.counters.get(cause, 0) for cause in PASSED_OVER)
        self._found.check(2, "verdicts accounted", self._verdicts)
        if self._taken + counted != self._verdicts:
            self._found.find(
                2,
                f"{self._verdicts} verdicts were read, {self._taken} taken into an attempt whose lease was good and "
                f"{counted} counted as events that changed nothing",
            )
        self._found.figures["passed_over_verdicts"] = float(self._verdicts - self._taken)

    def _known(self, where: str) -> Callable[[str, str], bool]:
        def known(lease: str, task: str) -> bool:
            if lease not in self.assigned:
                self._found.find(2, f"{where}: {task} holds a lease nobody gave it")
            return lease in self.assigned

        return known
