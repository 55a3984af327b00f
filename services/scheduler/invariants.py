"""What must hold after every batch. Invariant: no line found means nothing is lost, and free + leased = capacity."""

from __future__ import annotations

from collections import Counter

from schemas.states import UNDER_WAY
from services.scheduler.lanes import Occupancy
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.state import State


def invariant(state: State) -> list[str]:
    """Violations, one line each; none when the state is sound."""
    found = _tasks(state)
    for entry in state.live.values():
        found += _entry(state, entry)
    return found + _indexes(state)


def _tasks(state: State) -> list[str]:
    found: list[str] = []
    meta = state.meta
    live, ended = len(state.live), len(state.ended)
    terminal = sum(meta.ended.values())  # the forgotten ones too
    if meta.submitted != live + terminal:
        found.append(f"submitted {meta.submitted} is not live {live} + terminal {terminal}")
    if meta.ends != terminal or terminal < ended:
        found.append(f"terminal states count {terminal} of {meta.ends} ends, {ended} are remembered")
    if sorted([*state.done, *state.refused]) != sorted(state.ended):
        found.append(
            f"{len(state.done) + len(state.refused)} ended tasks are lined up, {ended} are remembered"
        )
    if both := state.live.keys() & state.ended.keys():
        found.append(f"{len(both)} tasks are live and terminal, e.g. {min(both)}")
    return found


def _entry(state: State, entry: TaskEntry) -> list[str]:
    found: list[str] = []
    number = (
        entry.failures
        + entry.losses
        + entry.timeouts
        + entry.drains
        + entry.spared
        + (entry.state in UNDER_WAY)
    )
    if entry.attempt != number:
        found.append(
            f"task {entry.id} in {entry.state} is at attempt {entry.attempt}, its counts say {number}"
        )
    if entry.state != "ready" and state.scheduled.get(entry.id, float("inf")) > entry.due_at:
        found.append(f"task {entry.id} in {entry.state} has no timer by {entry.due_at}")
    if not entry.kills <= entry.deaths <= entry.losses:
        found.append(
            f"task {entry.id} has {entry.losses} losses, {entry.deaths} deaths and {entry.kills} kills"
        )
    if (entry.state == "waiting") != bool(entry.children):
        found.append(f"task {entry.id} is {entry.state} and waits for {len(entry.children)} sub-tasks")
    past = {child.id for child in entry.past}
    if entry.children and all(child in state.ended or child in past for child in entry.children):
        found.append(f"task {entry.id} waits for sub-tasks that have all ended")
    if len(entry.results) >= entry.group_size:
        found.append(f"task {entry.id} has all its verdicts and is still {entry.state}")
    return found


def _indexes(state: State) -> list[str]:
    entries = state.live.values()
    held = [entry for entry in entries if entry.state in HELD]
    active = {entry.lease_id for entry in entries if entry.state in UNDER_WAY}
    train = sum(entry.state in UNDER_WAY and entry.purpose == "train" for entry in entries)
    ready = sum(entry.state == "ready" for entry in entries)
    waiting = sum(lane.ready for lanes in state.lanes.values() for lane in lanes.values())
    found: list[str] = []
    for kind, counted in (("pool", state.occupied), ("domain", state.held)):
        parts: dict[str, list[TaskEntry]] = {name: [] for name in counted}
        for entry in held:
            parts.setdefault(entry.pool if kind == "pool" else entry.domain, []).append(entry)
        for name, part in sorted(parts.items()):
            there = counted.get(name, Occupancy())
            sums = len(part), sum(entry.slots for entry in part), sum(entry.tokens for entry in part)
            if sums != (there.leases, there.slots, there.tokens):
                found.append(
                    f"{kind} {name} counts {there.leases} leases, {there.slots} slots and {there.tokens} tokens, "
                    f"it has {sums}"
                )
    phases = Counter(entry.state for entry in entries)
    if {phase: count for phase, count in state.phases.items() if count} != phases:
        found.append(f"live tasks by state are counted as {state.phases}, there are {dict(phases)}")
    members = sum(entry.group_size for entry in entries if entry.state in UNDER_WAY)
    if state.members != members:
        found.append(f"{state.members} samples are counted as under way, {members} are")
    if set(state.leases) != active:
        found.append(f"{len(state.leases)} leases are indexed, {len(active)} attempts are under way")
    if state.training != train:
        found.append(f"{state.training} training groups are counted as running, {train} are")
    expected = {child: entry.id for entry in entries for child in entry.children}
    if state.expected != expected:
        found.append(f"{len(state.expected)} sub-tasks are indexed, {len(expected)} are waited for")
    if waiting != ready:
        found.append(f"lanes hold {waiting} tasks, {ready} are ready")
    return found
