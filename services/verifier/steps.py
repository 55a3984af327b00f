"""One step of an answer that is judged stage by stage, in the slot's process.

Invariant: what is to be committed has its snapshot in the store before anybody hears of it, and what is restored has been
checked against its digest. Only the state of the last step is kept in memory, while it is small, until any other answer comes.
"""

from __future__ import annotations

import time

from schemas.verdicts import Verdict, clip, infra
from services.runtime.blobs import BlobError, Blobs
from services.verifier import engine
from services.verifier.bounds import Bounds
from services.verifier.families.course import Course, JailFaultError
from services.verifier.frames import Reply, Request, Resume
from services.verifier.jail import Jail, Snapshot, SnapshotError
from services.verifier.jail.snapshot import load, save
from services.verifier.networked import Networked, told
from services.verifier.progress import Committed, Progress
from services.verifier.watched import Watched

SMALL_BYTES = 8 << 20
"""Content of a snapshot that may stay in memory between two steps: it counts against the bounds of the next answer."""


class Stepper:
    """Judges steps; remembers where the last one ended."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._last: tuple[str, tuple[Committed, ...], Course] | None = None

    def forget(self) -> None:
        """Drop what is kept in memory."""
        self._last = None

    def step(self, request: Request, resume: Resume, jail: Watched) -> Reply:
        """Judge the next stage of the answer; the reply lacks what the jail counts. Raises MemoryError."""
        found = engine.guarded(request.card, lambda: self._step(request, resume, jail))
        if isinstance(found, Verdict):
            self.forget()
            return Reply(verdict=found)
        return found

    def _step(self, request: Request, resume: Resume, jail: Watched) -> Reply | Verdict:
        task, card, settings = request.task, request.card, request.card.verifier.settings
        family, allow = engine.prepared(task, card, len(request.submission), request.answer_limit)
        inside: Jail = jail if allow is None else Networked(jail, allow)
        last, self._last = self._last, None
        if last is not None and last[:2] == (resume.owner, resume.stages):
            course = last[2]
            course.jail = inside
        else:
            limits = engine.jail_limits(card.limits)
            course = family.begin(task, settings, limits, request.submission, inside)
            done = len(resume.stages) == len(course.stages)
            try:
                snapshot = None if done else self._restored(resume)
            except SnapshotError as error:
                return Reply(verdict=None, damaged=clip(str(error)), back=Progress(stages=resume.stages).base)
            taken = resume.stages[-1].taken if resume.stages else 0
            course.resume((each.result for each in resume.stages), taken, snapshot)
        started, stood = time.monotonic(), course.snapshot
        try:
            made = course.advance()
            if course.snapshot is not None and course.snapshot is not stood:
                with self._bounds.lifted():
                    save(course.snapshot, Blobs(resume.parts))
        except JailFaultError as error:
            return infra(clip(str(error)))
        except (BlobError, SnapshotError) as error:
            return infra(clip(f"the state after a stage cannot be kept: {error}"))
        took_s = round(time.monotonic() - started, 6)
        committed = tuple(
            Committed(
                result=each.result,
                taken=each.taken,
                worker=resume.worker,
                runs=jail.runs if each.ran else 0,
                duration_s=took_s if each.ran else 0.0,
                settled=jail.settled or not each.ran,
            )
            for each in made
        )
        if course.finished:
            verdict = family.conclude(course, settings)
            course.close()
            return Reply(verdict=told(verdict, allow) if allow else verdict, committed=committed)
        if _bytes(course.snapshot) <= SMALL_BYTES:
            self._last = (resume.owner, resume.stages + committed, course)
        return Reply(verdict=None, committed=committed)

    def _restored(self, resume: Resume) -> Snapshot | None:
        """The last good state, from the store. Raises SnapshotError, or BlobError when the store cannot be asked."""
        name = Progress(stages=resume.stages).snapshot
        if not name:
            return None
        with self._bounds.lifted():
            return load(name, Blobs(resume.parts))


def _bytes(snapshot: Snapshot | None) -> int:
    layers = snapshot.layers if snapshot is not None else ()
    return sum(len(entry.content) for layer in layers for entry in layer.tree.values())
