"""The ladder. Invariant: it only goes down, a bounded number of rungs, and only for tasks whose failure is no measurement.

A domain remembers how its recent sub-tasks fared, rung by rung. Where few pass on the rung that failing tasks go to first,
they go to a lower one; when most pass there again, to the higher one: two thresholds apart, so that it does not flutter. A
sub-task that passes leads to one try on the rung above (a climb), unless few on its rung pass. A climb has no sub-tasks of
its own: down and up again is the longest way, and every lineage ends.
"""

from __future__ import annotations

from schemas.cards import Ladder, Retry, Step, rungs
from schemas.ids import derive
from schemas.tasks import Purpose, Task
from services.scheduler.records import Domain
from services.scheduler.state import State

WINDOW = 8
"""Results on a rung that are remembered."""
ENOUGH = 4
"""Results from which on a rung's share of passes says something about climbing."""
FEW = 0.25
MOST = 0.75
CLIMBS = 0.5
"""Least share of passes on a rung for climbs from it."""


def simpler(step: Step, task: Task, children: int) -> bool:
    """Whether a step makes the task simpler: less difficult, the same with help, or fewer stages at a time."""
    if step.decompose:
        return bool(parts(task, children))
    if step.difficulty is None:
        return bool(step.hint)
    return step.difficulty < task.difficulty or (bool(step.hint) and step.difficulty <= task.difficulty)


def parts(task: Task, children: int) -> list[int]:
    """How many first stages each sub-task of a decomposed task has: at most `children`, growing, all fewer than it has."""
    stages = task.spec.get("stages")
    whole = len(stages) if isinstance(stages, list) else 0
    count = min(children, whole - 1)
    return [max(1, whole * (index + 1) // (count + 1)) for index in range(count)] if count > 0 else []


def next_level(
    ladder: Ladder, purpose: Purpose, level: int, task: Task, *, start: int = 0, climb: bool = False
) -> int | None:
    """Level of the sub-tasks of a task on `level`; None at the bottom. Level n is the rung of steps[n - 1], 0 the task itself.

    `start` is the domain's first rung (see `first_rung`), 0 for the top one. Evaluation tasks and climbs have no ladder.
    """
    if purpose == "eval" or climb:
        return None
    steps = rungs(ladder)
    first = min(max(level, start - 1), len(steps))
    order = [*range(first, len(steps)), *range(first - 1, level - 1, -1)]
    return next((n + 1 for n in order if simpler(steps[n], task, ladder.children)), None)


def retries(retry: Retry, ladder: Ladder, purpose: Purpose, failures: int, *, below: int | None) -> bool:
    """Whether a task that failed `failures` times is tried again as it is; `below` is what `next_level` says.

    A task uses its retry budget first; with a rung left it is tried until `ladder.after` consecutive failures as well.
    An evaluation task is measured once: trying until it passes would bias the figure.
    """
    if purpose == "eval":
        return False
    if failures <= retry.failures:
        return True
    return below is not None and failures < ladder.after


def above(ladder: Ladder, level: int, origin: float) -> tuple[int, float]:
    """Level and difficulty of a climb from `level`: the next rung that is a new draw below `origin`, or the top."""
    steps = rungs(ladder)
    for n in range(min(level - 1, len(steps)), 0, -1):
        step = steps[n - 1]
        if step.difficulty is not None and step.difficulty < origin and not step.hint:
            return n, step.difficulty
    return 0, origin


def first_rung(state: State, domain: str) -> int:
    """Level that failing tasks of a domain go to first."""
    record = state.domains.get(domain)
    return 1 if record is None else max(1, record.rung)


def climbs(record: Domain, level: int) -> bool:
    """Whether passes on a rung are worth a try on the one above; yes while little is known."""
    known = record.rungs.get(str(level), ())
    return len(known) < ENOUGH or sum(known) >= CLIMBS * len(known)


def remember(state: State, ladder: Ladder, domain: str, level: int, *, passed: bool) -> None:
    """Take a measured end on a rung into the domain's record, and set the rung that failing tasks go to first."""
    if level < 1:
        return
    record = state.domain(domain)
    name = str(level)
    record.rungs[name] = [*record.rungs.get(name, ())[-(WINDOW - 1) :], passed]
    known, first = record.rungs[name], max(1, record.rung)
    if level != first or len(known) < WINDOW:
        return
    share = sum(known) / len(known)
    if share <= FEW and first < len(ladder.steps):
        _turn(record, first + 1)
    elif share >= MOST and first > 1:
        _turn(record, first - 1)


def _turn(record: Domain, level: int) -> None:
    """Send failing tasks to `level` first; what is known of it is of another time."""
    record.rung = level
    record.rungs.pop(str(level), None)


def child_id(parent: str, level: int, index: int) -> str:
    """Id of sub-task `index` of `parent` on rung `level`."""
    return derive("sub-task", parent, level, index)


def climb_id(parent: str, level: int) -> str:
    """Id of the try on `level` after a simpler sub-task of `parent` passed: one, however many passed."""
    return derive("climb", parent, level)


def child_seed(parent: str, level: int, index: int) -> int:
    """Seed of the draw that makes the sub-task, 48 bits."""
    return int(derive("sub-task-seed", parent, level, index)[:12], 16)
