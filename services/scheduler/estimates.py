"""How long an attempt holds its slot. Invariant: an estimate is a pure reading of the log so far, and bounded in memory.

Rolling medians (the 0.5 quantile over a window) by domain and by kind of task within it. A task's kind is what its producer
says, else the quarter of [0, 1] its difficulty lies in: work of one domain may differ tenfold, and short-first needs to know.
Which figure a task gets: its kind's once that has been seen `ENOUGH` times, else its domain's, else its card's. It is frozen
when the task comes in, so that no later measurement moves a task that waits.

A domain keeps `KINDS` kinds. A new one takes the place of the one that was seen longest ago, and only once that has been
silent for `SILENT` attempts of the domain: a producer that gives every task a kind of its own pushes out nobody's.
"""

from __future__ import annotations

import statistics
from typing import Literal

from schemas.cards import Deadline
from schemas.tasks import Task
from services.scheduler.records import Domain, Kind
from services.scheduler.state import State

WINDOW = 33
"""Attempts that a domain's median looks at."""
KIND_WINDOW = 17
"""Attempts that a kind's median looks at."""
KINDS = 8
"""Kinds of a domain that are told apart."""
ENOUGH = 5
"""Attempts from which on a kind's own median is used."""
SILENT = 256
"""Attempts of its domain without one of it after which a kind may be forgotten for a new one."""
QUARTERS = ("difficulty<0.25", "difficulty<0.5", "difficulty<0.75", "difficulty<=1")
"""Kinds of tasks whose producer names none."""
Basis = Literal["kind", "domain", "card"]
"""What an estimate was taken from."""


def kind_of(task: Task) -> str:
    """The kind of a task: its own word, else the quarter of its difficulty."""
    return task.kind or QUARTERS[min(len(QUARTERS) - 1, int(task.difficulty * len(QUARTERS)))]


def estimate(record: Domain | None, deadline: Deadline, kind: str = "") -> float:
    """Seconds that an attempt of a kind is expected to hold a slot; without a kind, any attempt of the domain."""
    return estimated(record, deadline, kind)[0]


def estimated(record: Domain | None, deadline: Deadline, kind: str = "") -> tuple[float, Basis]:
    """The same, and what it was taken from."""
    if record is not None:
        known = record.kinds.get(kind)
        if known is not None and len(known.seconds) >= ENOUGH:
            return known.estimate_s, "kind"
        if record.seconds:
            return record.estimate_s, "domain"
    return deadline.estimate_s, "card"


def observe(state: State, domain: str, seconds: float, kind: str = "") -> None:
    """Take the service seconds of an attempt that ran to its end into the estimates of its domain and kind."""
    record = state.domain(domain)
    record.seconds = [*record.seconds[-(WINDOW - 1) :], seconds]
    record.estimate_s = statistics.median(record.seconds)
    record.observed += 1
    if not kind:
        return
    known = record.kinds.get(kind) or _admit(record, kind)
    if known is None:
        return
    known.seconds = [*known.seconds[-(KIND_WINDOW - 1) :], seconds]
    known.estimate_s = statistics.median(known.seconds)
    known.seen = record.observed


def _admit(record: Domain, kind: str) -> Kind | None:
    """A place for a new kind; None while all places are taken by kinds that are still seen."""
    if len(record.kinds) >= KINDS:
        oldest = min(record.kinds, key=lambda name: (record.kinds[name].seen, name))
        if record.observed - record.kinds[oldest].seen < SILENT:
            return None
        del record.kinds[oldest]
    found = record.kinds[kind] = Kind()
    return found
