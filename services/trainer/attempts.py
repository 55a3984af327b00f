"""What the scheduler says of training attempts. Invariant: an attempt counts as over only once all it left in the log was read.

The scheduler's task states are on a topic of their own, so the end of an attempt may be read before its last samples and
verdicts, which were written earlier. So an end is first *noted*; when the reader has been asked where the log ends it is
*sealed*, and when that far has been read it is *final*. Ends that are not final keep the low water mark down: a restart
reads them again. Pure: places and times are arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from schemas.states import UNDER_WAY, TaskState
from services.trainer.place import Place

REMEMBERED = 65_536
"""Tasks of which it is remembered which attempt was over; a record that comes after that many more opens a group in vain."""
HEARD_S = 60.0
"""Silence of the scheduler after which its time is taken to stand still."""


class Attempts:
    """Which attempts are under way, and which are over."""

    def __init__(self, under_way: Mapping[str, int] | None = None) -> None:
        self.under_way: dict[str, int] = dict(under_way or {})
        """Task -> its attempt, as far as the states were read; bounded by what the scheduler lets run at a time."""
        self._noted: dict[str, tuple[int, Place]] = {}
        self._sealed: dict[str, tuple[int, Place]] = {}
        self._final: OrderedDict[str, int] = OrderedDict()

    def note(self, state: TaskState, place: Place) -> None:
        """Take a state of a training task."""
        task, attempt = state.task_id, state.attempt
        if state.state in UNDER_WAY:
            self.under_way[task] = max(attempt, self.under_way.get(task, 0))
            attempt -= 1  # those before it are over, also where their own end was told together with this
        elif self.under_way.get(task, 0) <= attempt:
            self.under_way.pop(task, None)
        if attempt > max(self.over(task), self._pending(task)):
            self._noted[task] = (attempt, place)

    def over(self, task: str) -> int:
        """The newest attempt at a task that is over for good; 0: none that is known."""
        return self._final.get(task, 0)

    @property
    def noted(self) -> bool:
        """Whether there are ends that are not sealed."""
        return bool(self._noted)

    def seal(self) -> None:
        """The ends noted so far are the ones that the end of the log, asked for after this, is beyond."""
        self._sealed, self._noted = self._sealed | self._noted, {}

    def finish(self) -> dict[str, int]:
        """All was read that was in the log when the ends were sealed: task -> newest attempt that is over, for these."""
        ends = {task: attempt for task, (attempt, _) in self._sealed.items()}
        self._sealed = {}
        for task, attempt in ends.items():
            self._final[task] = attempt
            self._final.move_to_end(task)
        while len(self._final) > REMEMBERED:
            self._final.popitem(last=False)
        return ends

    def places(self) -> list[Place]:
        """Where the ends are that are not final."""
        return [place for ends in (self._noted, self._sealed) for _, place in ends.values()]

    def _pending(self, task: str) -> int:
        return max(ends[task][0] if task in ends else 0 for ends in (self._noted, self._sealed))


class SchedulerTime:
    """Seconds in which the scheduler was heard. Invariant: it stands still while the scheduler does, and never jumps.

    While no scheduler runs, no attempt can end; so silence counts against a group only in this time.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._at: float | None = None
        self._heard: float | None = None

    def tick(self, now: float, *, heard: bool) -> float:
        """Go on to `now` (a monotonic clock); `heard`: a state has come since the last call."""
        if self._at is not None and self._heard is not None:
            self.seconds += max(0.0, min(now, self._heard + HEARD_S) - self._at)
        self._at = now
        if heard:
            self._heard = now
        return self.seconds
