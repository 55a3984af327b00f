"""The table of states is closed and total, and it is what the fold goes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import lease_id, trajectory_id
from schemas.rewards import StageVerified
from schemas.states import TERMINAL, State
from schemas.tasks import (
    DomainPaused,
    DomainResumed,
    QuotaChanged,
    Task,
    TaskCancelled,
    TaskSubmitted,
)
from schemas.verdicts import StageResult
from services.scheduler.effects import Publish
from services.scheduler.fold import fold, tick
from services.scheduler.invariants import invariant
from services.scheduler.machine import HAPPENINGS, LIVE, PHASES, TABLE, UNTIL, after
from services.scheduler.moves import take
from services.scheduler.policies import Policies, Policy
from services.scheduler.snapshot import snapshot
from services.scheduler.state import State as Fold
from tests.unit.scheduler.conftest import Bench
from tests.verdicts import judged

if TYPE_CHECKING:
    from schemas.base import Event


def test_the_table_names_states_and_events_only_and_no_end_is_left() -> None:
    for (phase, happening), target in TABLE.items():
        assert phase in LIVE
        assert happening in HAPPENINGS
        assert target in PHASES
    assert {happening for _, happening in TABLE} == set(HAPPENINGS)
    assert set(PHASES) - set(TABLE.values()) == {"rejected"}, "only admission rejects"


def test_every_live_state_can_be_left_for_an_end_and_says_what_ends_it() -> None:
    assert set(UNTIL) == set(LIVE)
    for start in LIVE:
        reached: set[State] = {start}
        while True:
            wider = reached | {target for (phase, _), target in TABLE.items() if phase in reached}
            if wider == reached:
                break
            reached = wider
        assert reached >= {"succeeded", "failed", "dead", "cancelled"}


def at(phase: State) -> Bench:
    """A core with task `t` in a state, brought there by events."""
    bench = Bench()
    bench.policies.domains["j"] = msgspec.structs.replace(
        bench.policies.domains["b"],
        ladder=msgspec.structs.replace(bench.policies.domains["b"].ladder, join="all"),
    )
    domain = {"degraded": "b", "waiting": "j", "failed": "b"}.get(phase, "a")
    if phase == "rejected":
        bench.submit("t", domain="nowhere")
        return bench
    bench.submit("t", domain=domain, difficulty=0.0 if phase == "failed" else 1.0, batch="x")
    if phase == "ready":
        return bench
    bench.beat()
    bench.tick()
    lease = bench.state.live["t"].lease_id
    match phase:
        case "running":
            bench.beat(leases=(lease,))
        case "verifying":
            bench.beat(released=(lease,))
        case "succeeded":
            bench.verdicts("t", 1.0, 1.0)
        case "backoff" | "degraded" | "waiting" | "failed":
            bench.verdicts("t", 0.0, 0.0)
        case "cancelled":
            bench.send(TaskCancelled(task_id="t"))
        case "dead":
            for _ in range(3):
                bench.verdicts("t", None, None)
                bench.tick(20.0)
                bench.beat()
                bench.tick()
        case _:
            pass
    assert bench.phase("t") == phase
    return bench


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("phase", LIVE)
def test_every_pair_moves_as_the_table_says_or_is_a_counted_no_op(phase: State, happening: str) -> None:
    bench = at(phase)
    entry = bench.state.live["t"]
    before = snapshot(bench.state)
    target = after(phase, happening)  # type: ignore[arg-type]
    effects = take(bench.state, entry, happening, bench.now, due_at=bench.now + 1.0)  # type: ignore[arg-type]
    own = [e.event for e in effects if isinstance(e, Publish) and e.event.task_id == "t"]
    if target is None:
        assert effects == []
        assert bench.state.meta.counters[f"illegal_{happening}"] == 1
        assert {k: v for k, v in snapshot(bench.state).items() if k != "meta"} == {
            k: v for k, v in before.items() if k != "meta"
        }
    else:
        assert bench.phase("t") == target
        assert [event.state for event in own] == [target], "one announced event a transition"


@pytest.mark.parametrize("happening", HAPPENINGS)
@pytest.mark.parametrize("phase", sorted(TERMINAL))
def test_nothing_happens_to_what_has_ended(phase: State, happening: str) -> None:
    assert after(phase, happening) is None  # type: ignore[arg-type]


def events(bench: Bench) -> list[Event]:
    """One of each kind that can be about task `t`, for its present attempt, for another, and for none."""
    entry = bench.state.live.get("t")
    attempt = max(1, entry.attempt) if entry is not None else 1
    found: list[Event] = []
    for number in (attempt, attempt + 1):
        lease = lease_id("t", number)
        for index in (0, 7):
            name = trajectory_id("t", number, index)
            found += [judged("t", said, number, index) for said in (None, 1.0)]
            result = StageResult(name="s", weight=1.0, score=1.0, passed=True)
            found.append(
                StageVerified(trajectory_id=name, task_id="t", attempt=number, stage=0, result=result)
            )
        for reason in ("finished", "abandoned", "killed"):
            given = (Released(lease_id=lease, reason=reason),)
            found.append(WorkerHeartbeat(worker="w", service="sampler", pool="standard", released=given))
        found.append(WorkerHeartbeat(worker="w", service="sampler", pool="standard", leases=(lease,)))
    found += [
        WorkerHeartbeat(worker="w", service="sampler", pool="standard", ended="memory"),
        TaskSubmitted(task=Task(id="t", domain="a", prompt="2 + 2")),
        TaskSubmitted(task=Task(id="t", domain="a", prompt="another")),
        TaskCancelled(task_id="t"),
        TaskCancelled(batch="x"),
        TaskCancelled(),
        DomainPaused(domain="a"),
        DomainResumed(domain="a"),
        QuotaChanged(domain="a", nominal=1),
    ]
    return found


@pytest.mark.parametrize("number", range(len(events(Bench()))))
@pytest.mark.parametrize("phase", PHASES)
def test_every_event_in_every_state_is_legal_or_changes_nothing(phase: State, number: int) -> None:
    bench = at(phase)
    event = events(bench)[number]
    effects = fold(bench.state, bench.policies, event, bench.now)
    assert invariant(bench.state) == []
    then = bench.phase("t")
    told = [e.event.state for e in effects if isinstance(e, Publish) and e.event.task_id == "t"]
    if any(isinstance(e, Publish) and e.event.cause == "id_taken" for e in effects):
        assert told == ["rejected", phase], "another submitter is answered, and the truth is told again"
        told = []
    reachable = {target for (start, _), target in TABLE.items() if start == phase}
    assert then == phase or then in reachable
    assert (then != phase) == bool(told)
    if phase in TERMINAL:
        assert then == phase


@pytest.mark.parametrize("phase", [phase for phase in LIVE if phase != "ready"])
def test_time_alone_ends_every_state_but_ready(phase: State) -> None:
    bench = at(phase)
    bench.tick(10_000_000.0)
    assert bench.phase("t") != phase


def test_a_clock_thirty_days_ahead_loses_nothing() -> None:
    table = Policies(domains={"a": Policy()}, group_size=1, eta=100)
    state = Fold()
    for number in range(20):
        fold(state, table, TaskSubmitted(task=Task(id=f"t{number}", domain="a", prompt="p")), 1000.0)
    beat = WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=10)
    fold(state, table, beat, 1000.0)
    tick(state, table, 1000.0)
    tick(state, table, 1000.0 + 30 * 86_400.0)
    assert invariant(state) == []
    assert len(state.live) == 20
    assert all(entry.losses <= 1 for entry in state.live.values())
