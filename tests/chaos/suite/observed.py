"""What an observer of the task states sees. Invariant: each task ends once, and the newest record is the truth."""

from __future__ import annotations

from schemas.states import TERMINAL, TaskState
from services.runtime.fence import EpochFence
from tests.chaos.suite.findings import Audit
from tests.chaos.suite.log import Log


def observed(log: Log, found: Audit, *, settled: bool) -> None:
    """Hold the task states on the log against the folded states."""
    ends: dict[str, set[tuple[str, int]]] = {}
    newest: dict[str, TaskState] = {}
    fence = EpochFence()
    for record in fence.admitted(log.of("task-states")):  # without what a replaced scheduler wrote too late
        said = record.event
        if not isinstance(said, TaskState):
            continue
        newest[said.task_id] = said
        if said.state in TERMINAL:
            ends.setdefault(said.task_id, set()).add((said.state, said.attempt))
    found.check(1, "ends observed", len(ends))
    found.figures["fenced_states"] = float(fence.dropped)
    conflicts = {
        name for name, many in ends.items() if len({end for end in many if end[0] != "rejected"}) > 1
    }
    if conflicts:
        found.find(1, f"{len(conflicts)} tasks ended more than once, e.g. {min(conflicts)}")
    truth: dict[str, str] = {}
    for state in found.states.values():
        truth |= {task.id: task.state for task in state.live.values()}
        truth |= {task.id: task.state for task in state.ended.values()}
    wrong = [
        name
        for name, state in truth.items()
        if settled and (name not in newest or newest[name].state != state)
    ]
    if wrong:
        shown = newest.get(wrong[0])
        found.find(
            2,
            f"{len(wrong)} tasks have a newest record that is not their state, e.g. {wrong[0]} is {truth[wrong[0]]}, "
            f"shown as {shown.state if shown else None}",
        )
