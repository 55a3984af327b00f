"""Arbitrary histories: duplicates, losses, reorderings, clocks that stand still; the core must stay sound and deterministic."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cards import Deadline, Ladder, Retry, Timeouts
from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import lease_id, trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.states import TERMINAL
from schemas.tasks import (
    DomainPaused,
    DomainResumed,
    PolicyRef,
    QuotaChanged,
    Task,
    TaskCancelled,
    TaskSubmitted,
)
from schemas.verdicts import StageResult
from services.scheduler.cohorts import limits_of, used
from services.scheduler.effects import Assign, Derive, Publish
from services.scheduler.fold import Batch, Input, fold, step, tick
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy
from services.scheduler.records import HELD
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.verdicts import judged

TABLE = Policies(
    domains={
        "a": Policy(
            retry=Retry(failures=1, infra=1, backoff_s=1.0), timeouts=Timeouts(lease_s=5.0, verify_s=5.0)
        ),
        "b": Policy(nominal=2, ladder=Ladder(steps=(0.5,)), timeouts=Timeouts(lease_s=5.0, verify_s=5.0)),
        "c": Policy(
            weight=3.0,
            ladder=Ladder(steps=(0.3, 0.0), join="all"),
            timeouts=Timeouts(lease_s=5.0, attempt_s=30.0, verify_s=5.0, children_s=50.0),
        ),
    },
    group_size=2,
    groups_per_step=3,
    eta=1,
    ready_cap=8,
)
NAMES = [f"t{number}" for number in range(8)]

task_ids = st.sampled_from(NAMES)
domains = st.sampled_from(["a", "b", "c", "nowhere"])
attempts = st.integers(1, 4)


def submitted(name: str, domain: str, prompt: int, purpose: Any, key: str, batch: str) -> TaskSubmitted:
    task = Task(id=name, domain=domain, prompt=f"p{prompt}", purpose=purpose, batch=batch)
    return TaskSubmitted(task=task, idempotency_key=key)


def beat(
    worker: str, slots: int, held: list[tuple[str, int]], given_back: list[tuple[str, int]], *, drain: bool
) -> Any:
    return WorkerHeartbeat(
        worker=worker,
        service="sampler",
        pool="standard",
        slots=slots,
        draining=drain,
        leases=tuple(lease_id(*lease) for lease in held),
        released=tuple(Released(lease_id=lease_id(*lease), reason="finished") for lease in given_back),
    )


def staged(name: str, attempt: int, index: int, stage: int, *, passed: bool) -> StageVerified:
    result = StageResult(name="s", weight=1.0, score=float(passed), passed=passed)
    identity = trajectory_id(name, attempt, index)
    return StageVerified(trajectory_id=identity, task_id=name, attempt=attempt, stage=stage, result=result)


leases = st.lists(st.tuples(task_ids, attempts), max_size=4)
events = st.one_of(
    st.builds(
        submitted,
        task_ids,
        domains,
        st.integers(0, 1),
        st.sampled_from(["train", "train", "eval"]),
        st.sampled_from(["", "", "k"]),
        st.sampled_from(["", "x"]),
    ),
    st.builds(judged, task_ids, st.sampled_from([None, 0.0, 0.5, 1.0]), attempts, st.integers(-1, 2)),
    st.builds(beat, st.sampled_from(["v", "w"]), st.integers(0, 3), leases, leases, drain=st.booleans()),
    st.builds(staged, task_ids, attempts, st.integers(0, 2), st.integers(0, 3), passed=st.booleans()),
    st.builds(
        lambda worker, how: WorkerHeartbeat(worker=worker, service="sampler", pool="standard", ended=how),
        st.sampled_from(["v", "w"]),
        st.sampled_from(["exit", "signal", "memory"]),
    ),
    st.builds(
        lambda name, batch: TaskCancelled(task_id=name, batch=batch), task_ids, st.sampled_from(["", "", "x"])
    ),
    st.builds(lambda name: DomainPaused(domain=name), domains),
    st.builds(lambda name: DomainResumed(domain=name), domains),
    st.builds(lambda name, number: QuotaChanged(domain=name, nominal=number), domains, st.integers(0, 2)),
    st.builds(
        lambda version: CheckpointPublished(
            run="run",
            policy=PolicyRef(version=version, uri="u", digest="d"),
            step=version,
            final=version == 9,
        ),
        st.sampled_from([0, 1, 2, 9]),
    ),
)
batches = st.lists(
    st.tuples(st.lists(events, max_size=6), st.sampled_from([-5.0, 0.0, 0.1, 2.0, 6.0, 40.0]), st.booleans()),
    max_size=12,
)


def history(plan: list[tuple[list[Any], float, bool]]) -> list[Batch]:
    now, found = 1000.0, []
    for seq, (chosen, seconds, behind) in enumerate(plan, start=1):
        now += seconds
        inputs = tuple(Input(event=event, at=now - 1.0) for event in chosen)
        found.append(Batch(seq=seq, now=now, caught_up=not behind or seconds > 1.0, inputs=inputs))
    return found


def submission_of(effect: Derive) -> TaskSubmitted:
    """What the edge makes of a wish for a sub-task."""
    difficulty = effect.parent.difficulty if effect.difficulty is None else effect.difficulty
    task = msgspec.structs.replace(effect.parent, id=effect.child_id, difficulty=difficulty)
    return TaskSubmitted(
        task=task,
        parent=effect.parent.id,
        level=effect.level,
        origin=effect.origin,
        climb=effect.climb,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches, st.integers(0, 11))
def test_any_history_is_sound_repeatable_and_resumable(
    plan: list[tuple[list[Any], float, bool]], cut: int
) -> None:
    state, twin = State(), State()
    dispatched: Counter[str] = Counter()
    endings: dict[str, set[tuple[str, int, str]]] = {}
    late: tuple[Input, ...] = ()
    for number, planned in enumerate(history(plan)):
        batch = planned
        owed = [item.event for item in batch.inputs]
        batch = msgspec.structs.replace(batch, inputs=(*batch.inputs, *late))
        effects = step(state, TABLE, batch)
        assert invariant(state) == []
        late = tuple(
            Input(event=submission_of(effect), at=batch.now)
            for effect in effects
            if isinstance(effect, Derive) and owed  # now and then a sub-task never comes
        )
        if number == cut:
            twin = restore(snapshot(twin))
        assert step(twin, TABLE, batch) == effects
        dispatched.update(effect.event.lease_id for effect in effects if isinstance(effect, Assign))
        for effect in effects:
            if (
                isinstance(effect, Publish)
                and effect.event.state in TERMINAL
                and effect.event.cause != "id_taken"
            ):
                said = effect.event
                endings.setdefault(said.task_id, set()).add((said.state, said.attempt, said.cause))
        # No lease of `b` beyond its quota, none beyond the slots that live samplers report.
        given = [effect for effect in effects if isinstance(effect, Assign)]
        if any(state.live[effect.task_id].domain == "b" for effect in given):
            assert used(state, "b") <= limits_of(state, TABLE, "b").most
        there = sum(
            worker.slots
            for worker in state.workers.values()
            if worker.service == "sampler"
            and worker.pool == "standard"
            and not worker.draining
            and batch.now - worker.seen_at < TABLE.worker_timeout_s
        )
        leased = sum(entry.slots for entry in state.live.values() if entry.state in HELD)
        assert not given or leased <= there
    assert snapshot(state) == snapshot(twin)
    assert all(count == 1 for count in dispatched.values()), "one dispatch a lease"
    assert all(len(ends) == 1 for ends in endings.values()), "one end a task"
    assert set(endings) == set(state.ended)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=25), st.randoms(use_true_random=False))
def test_a_second_delivery_of_everything_changes_no_task(chosen: list[Any], rng: random.Random) -> None:
    once, twice = State(), State()
    kinds = (TaskSubmitted, TrajectoryVerified, TaskCancelled)
    for event in (item for item in chosen if isinstance(item, kinds)):
        fold(once, TABLE, event, 1000.0)
        fold(twice, TABLE, event, 1000.0)
        fold(twice, TABLE, event, 1000.0)
    assert {name: value for name, value in snapshot(once).items() if name != "meta"} == {
        name: value for name, value in snapshot(twice).items() if name != "meta"
    }


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.1, 500.0)), min_size=2, max_size=40),
    st.integers(1, 3),
)
def test_nobody_is_overtaken_by_work_that_came_later_than_the_cap(
    arrivals: list[tuple[float, float]], slots: int
) -> None:
    """Estimates are made to vary as wildly as they can; the bound is in the virtual deadline alone."""
    cap = 60.0
    table = Policies(
        domains={"a": Policy(deadline=Deadline(slack=4.0, cap_s=cap), timeouts=Timeouts(lease_s=1e6))},
        group_size=1,
        eta=10_000,
        worker_timeout_s=1e9,
    )
    state, now, order = State(), 0.0, []
    fold(state, table, WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=slots), now)
    arrived: dict[str, float] = {}
    for number, (gap, estimate_s) in enumerate(arrivals):
        now += gap
        record = state.domain("a")
        record.seconds, record.estimate_s = [estimate_s], estimate_s
        name = f"t{number}"
        arrived[name] = now
        fold(state, table, TaskSubmitted(task=Task(id=name, domain="a", prompt="p")), now)
        order += _dispatched(tick(state, table, now))
        if number % 3 == 0:
            _finish_one(state, table, now)
    while state.live:
        now += 1.0
        _finish_one(state, table, now)
        order += _dispatched(tick(state, table, now))
    place = {name: index for index, name in enumerate(order)}
    assert set(place) == set(arrived)
    for early in order:
        for late in order[: place[early]]:
            assert arrived[late] <= arrived[early] + cap


def _dispatched(effects: list[Any]) -> list[str]:
    return [effect.event.task.id for effect in effects if isinstance(effect, Assign)]


def _finish_one(state: State, table: Policies, now: float) -> None:
    held = sorted(
        (entry for entry in state.live.values() if entry.state in HELD), key=lambda entry: entry.order
    )
    if held:
        fold(state, table, judged(held[0].id, 1.0, held[0].attempt), now)


def test_short_work_in_a_crowd_does_not_starve_the_long() -> None:
    """95 % short, 5 % long arrivals at load 0.95: the longest wait stays within the cap and the backlog ahead of it."""
    rng = random.Random(5)
    table = Policies(
        domains={"short": Policy(weight=1.0), "long": Policy(weight=1.0)},
        group_size=1,
        eta=100_000,
        worker_timeout_s=1e9,
        ready_cap=10**6,
    )
    table.domains["short"] = Policy(deadline=Deadline(estimate_s=1.0), timeouts=Timeouts(lease_s=1e6))
    table.domains["long"] = Policy(deadline=Deadline(estimate_s=20.0), timeouts=Timeouts(lease_s=1e6))
    state, now, waits = State(), 0.0, {"short": 0.0, "long": 0.0}
    fold(state, table, WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=4), now)
    busy: list[tuple[float, str]] = []
    arrived: dict[str, float] = {}
    rate = 0.95 * 4 / (0.95 * 1.0 + 0.05 * 20.0)
    for number in range(3000):
        arrival = now + rng.expovariate(rate)
        while busy and min(busy)[0] <= arrival:
            ended, name = min(busy)
            busy.remove((ended, name))
            fold(state, table, judged(name, 1.0), ended)
            _start(state, table, ended, busy, arrived, waits)
        now = arrival
        domain = "long" if rng.random() < 0.05 else "short"
        name = f"t{number}"
        arrived[name] = now
        fold(state, table, TaskSubmitted(task=Task(id=name, domain=domain, prompt="p")), now)
        _start(state, table, now, busy, arrived, waits)
    assert invariant(state) == []
    assert waits["long"] < 600.0
    assert waits["short"] < 600.0


def _start(
    state: State,
    table: Policies,
    now: float,
    busy: list[tuple[float, str]],
    arrived: dict[str, float],
    waits: dict[str, float],
) -> None:
    for effect in tick(state, table, now):
        if isinstance(effect, Assign):
            task = effect.event.task
            waits[task.domain] = max(waits[task.domain], now - arrived[task.id])
            busy.append((now + (20.0 if task.domain == "long" else 1.0), task.id))


def test_sub_tasks_end_the_ladder() -> None:
    """A domain in which nothing ever passes: every task ends, and the number of sub-tasks is bounded by the ladder."""
    table = Policies(
        domains={"a": Policy(ladder=Ladder(steps=(0.6, 0.3, 0.0), children=2))},
        group_size=1,
        eta=1000,
        ready_cap=1000,
    )
    state, now = State(), 1000.0
    fold(state, table, TaskSubmitted(task=Task(id="root", domain="a", prompt="p", difficulty=1.0)), now)
    for _ in range(40):
        now += 1.0
        fold(state, table, WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=3), now)
        for effect in tick(state, table, now):
            if not isinstance(effect, Assign):
                continue
            for child in fold(state, table, judged(effect.event.task.id, 0.0), now):
                if isinstance(child, Derive):
                    fold(state, table, submission_of(child), now)
    assert state.live == {}
    assert Counter(ended.state for ended in state.ended.values()) == {"degraded": 7, "failed": 8}
