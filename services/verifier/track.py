"""A long answer between its stages, in the service. Invariant: a stage is told only once its record stands in the store.

Before every stage the store is looked at: where another worker has the same answer (a partition that moved, a process thought
dead), whoever is behind takes over what the other committed. So both end with the same stages, and none is begun that is
known to be committed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from schemas.tasks import Task
from services.verifier.frames import Resume
from services.verifier.keep import Keep
from services.verifier.progress import Committed, Progress

BACKS = 2
"""How many times an answer goes back to the same stage, because the state after it was lost."""


@dataclass(frozen=True, slots=True)
class Told:
    """A committed stage: its number from 0, of how many, and where the state that the next one starts from lies.

    `fresh`: committed just now; else it had been when the answer came, or another worker did it.
    """

    number: int
    stages: int
    what: Committed
    snapshot: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class Follow:
    """Who wants to know of the stages. `owner` names the trajectory and its content; `redelivered` as in its record.

    `limit`: deliveries without a commit after which the answer is not tried again; 0: any number.
    """

    owner: str
    tell: Callable[[Told], None]
    redelivered: int = 0
    limit: int = 0


class HandedBackError(RuntimeError):
    """The service is ending: what is committed stands, and the rest is left to whoever gets the record next."""


class Track:
    """One answer's progress, kept under `key`. `resumed`: stages that had been committed when it came."""

    def __init__(self, keep: Keep, key: str, follow: Follow, task: Task, worker: str) -> None:
        self.key, self._keep, self._follow, self._worker = key, keep, follow, worker
        stages = task.spec.get("stages")
        self._stages = len(stages) if isinstance(stages, list) else 0
        self._progress = Progress()
        self._told = 0
        self._backs: Counter[int] = Counter()
        """Stage -> how many times it was gone back to, by this service."""
        self.resumed = 0
        self.took_s = 0.0
        """Seconds in slots so far, of this service."""
        self.waited_s = 0.0
        """Seconds before its first stage."""

    @property
    def owner(self) -> str:
        """The trajectory and its content."""
        return self._follow.owner

    @property
    def done(self) -> int:
        """Committed stages."""
        return len(self._progress.stages)

    @property
    def settled(self) -> bool:
        """Whether all that was committed would be the same another time."""
        return all(each.settled for each in self._progress.stages)

    @property
    def resume(self) -> Resume:
        """What a worker is told."""
        return Resume(
            owner=self._follow.owner,
            parts=self._keep.parts(self.key),
            worker=self._worker,
            stages=self._progress.stages,
        )

    async def open(self) -> int:
        """See what is there; returns how many deliveries, this one not counted, have passed without a commit.

        The log's own count knows which deliveries ended in good order, the record which made progress: the smaller is
        that of deliveries that did neither. Raises BlobError.
        """
        await self.look()
        self.resumed = self.done
        if not self._follow.redelivered:
            return 0
        if not self._progress.restarts and not self.done:
            return self._follow.redelivered
        idle = min(self._progress.idle, self._follow.redelivered)
        await self._write(self._progress.delivered())
        return idle

    async def look(self) -> None:
        """Take over what stands in the store if it is further, and tell what has not been told. Raises BlobError."""
        self._adopt(await asyncio.to_thread(self._keep.read, self.key))

    async def commit(self, more: tuple[Committed, ...]) -> bool:
        """Make the next stages' results stand, or take over what another has made stand; whether it is ours.

        Raises BlobError.
        """
        wanted = self._progress.committed(more)
        await self._write(wanted)
        return self._progress is wanted

    def may_go_back(self, stage: int) -> bool:
        """Whether `back` to `stage` is still of use. The record's own count bounds what several services do in turn."""
        return self._backs[stage] < BACKS and self._progress.restarts < BACKS * self._stages

    async def back(self, stage: int, why: str) -> None:
        """Have `stage` and all after it judged again. Raises BlobError."""
        self._backs[stage] += 1
        await self._write(self._progress.back_to(stage, f"run again from here: {why}"))

    async def discard(self, *, record: bool) -> None:
        """Remove the snapshots, or the `record` with them. Raises BlobError."""
        await asyncio.to_thread(self._keep.drop if record else self._keep.drop_parts, self.key)

    async def _write(self, progress: Progress) -> None:
        stands = await asyncio.to_thread(self._keep.write, self.key, progress)
        self._adopt(stands, fresh=stands is progress)

    def _adopt(self, progress: Progress, *, fresh: bool = False) -> None:
        if progress.rank < self._progress.rank:
            return
        if progress.restarts > self._progress.restarts:
            self._told = min(self._told, _common(progress, self._progress))
        self._progress = progress
        for number in range(self._told, self.done):
            self._follow.tell(self._tale(number, fresh=fresh))
        self._told = self.done

    def _tale(self, number: int, *, fresh: bool) -> Told:
        upto = Progress(stages=self._progress.stages[: number + 1])
        address = self._keep.address(self.key, upto.snapshot)
        return Told(number, self._stages, self._progress.stages[number], address, fresh)


def _common(one: Progress, other: Progress) -> int:
    """Stages from the first on that both have alike."""
    pairs = zip(one.stages, other.stages, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one.stages), len(other.stages)))
