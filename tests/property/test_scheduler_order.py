"""Order within a domain under arbitrary arrivals: nobody is passed beyond the bound."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cards import Deadline, Retry, Timeouts
from schemas.heartbeats import WorkerHeartbeat
from schemas.tasks import (
    Task,
    TaskSubmitted,
)
from services.scheduler.effects import Assign
from services.scheduler.fold import fold, tick
from services.scheduler.policies import Policies, Policy
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.state import State
from tests.verdicts import judged

LONG = Timeouts(lease_s=1e6, attempt_s=1e6)


class Waiting(NamedTuple):
    """What is known of a ready task before a turn."""

    domain: str
    pool: str
    since: float
    priority: int
    started: bool


def ready(state: State) -> dict[str, Waiting]:
    return {entry.id: _waiting(entry) for entry in state.live.values() if entry.state == "ready"}


def _waiting(entry: TaskEntry) -> Waiting:
    return Waiting(entry.domain, entry.pool, entry.eligible_at, entry.priority, entry.attempt > 0)


def _in_order(
    state: State, waiting: dict[str, Waiting], caps: dict[str, float], effects: list[Any]
) -> Counter[str]:
    """No lease goes to a task while one of its lane waits that it must let go first; how often each rule was put to the test.

    The bound: who goes became eligible at most the cap, and a second for each point of priority it is ahead, later than who
    stays. A started one that stays is passed by nobody that became eligible later, priority apart: it has no slack any more.
    """
    seen = Counter[str]()
    for effect in effects:
        if not isinstance(effect, Assign):
            continue
        if effect.task_id not in waiting:  # its backoff ended in this very tick; it has had an attempt
            entry = state.live[effect.task_id]
            waiting[entry.id] = _waiting(entry)
        goes = waiting.pop(effect.task_id)
        for other, stays in waiting.items():
            if (stays.domain, stays.pool) != (goes.domain, goes.pool):
                continue
            ahead = goes.priority - stays.priority
            cap = 0.0 if stays.started else caps[goes.domain]
            assert goes.since <= stays.since + cap + ahead + 1e-9, f"{effect.task_id} went before {other}"
            seen["started stays" if stays.started else "fresh stays"] += 1
            seen["another priority"] += ahead != 0
    return seen


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 50.0),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["standard", "fast"]),
            st.floats(0.1, 500.0),
            st.booleans(),
            st.one_of(st.just(0), st.integers(-100, 100)),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.floats(0.0, 20.0), st.one_of(st.just(0.0), st.floats(1.0, 300.0))),
        min_size=3,
        max_size=3,
    ),
)
def test_no_task_is_passed_by_one_of_its_lane_that_came_later_than_the_cap(
    arrivals: list[tuple[float, str, str, float, bool, int]], slots: int, knobs: list[tuple[float, float]]
) -> None:
    """Whatever the estimates, priorities, deadline settings, failures and other domains: each dispatch looks at the lane."""
    passed(arrivals, slots, knobs)


def test_both_rules_of_the_lane_are_put_to_the_test() -> None:
    """The property above is not held by runs in which nothing happens."""
    rng = random.Random(7)
    seen = Counter[str]()
    for _ in range(20):
        arrivals = [
            (
                rng.uniform(0.0, 9.0),
                rng.choice("abc"),
                rng.choice(["standard", "fast"]),
                rng.uniform(0.1, 99.0),
                rng.random() < 0.5,
                rng.choice([0, rng.randint(-100, 100)]),
            )
            for _ in range(40)
        ]
        seen += passed(arrivals, 1, [(4.0, 60.0), (1.0, 20.0), (0.0, 0.0)])
    assert seen["started stays"] > 30
    assert seen["fresh stays"] > 500
    assert seen["another priority"] > 500


def passed(
    arrivals: list[tuple[float, str, str, float, bool, int]], slots: int, knobs: list[tuple[float, float]]
) -> Counter[str]:
    retry = Retry(failures=2, backoff_s=0.0)
    table = Policies(
        domains={
            name: Policy(weight=weight, retry=retry, deadline=Deadline(slack=slack, cap_s=cap), timeouts=LONG)
            for (name, weight), (slack, cap) in zip((("a", 1.0), ("b", 3.0), ("c", 0.1)), knobs, strict=True)
        },
        group_size=1,
        eta=10_000,
        worker_timeout_s=1e9,
    )
    caps = {name: policy.deadline.cap_s for name, policy in table.domains.items()}
    state, now, seen = State(), 0.0, Counter[str]()
    failing: set[str] = set()
    for pool in ("standard", "fast"):
        beat = WorkerHeartbeat(worker=pool, service="sampler", pool=pool, slots=slots)
        fold(state, table, beat, now)

    def turn() -> None:
        waiting = ready(state)
        seen.update(_in_order(state, waiting, caps, tick(state, table, now)))

    def finish() -> None:
        held = [entry for entry in state.live.values() if entry.state in HELD]
        if held:
            first = min(held, key=lambda entry: entry.order)
            score = 0.0 if first.id in failing and first.attempt < 3 else 1.0
            fold(state, table, judged(first.id, score, first.attempt, lease=first.lease_id), now)

    for number, (gap, domain, pool, estimate_s, fails, priority) in enumerate(arrivals):
        now += gap
        record = state.domain(domain)
        record.seconds, record.estimate_s = [estimate_s], estimate_s
        name = f"t{number}"
        if fails:
            failing.add(name)
        task = Task(id=name, domain=domain, prompt="p", pool=pool)
        fold(state, table, TaskSubmitted(task=task, priority=priority), now)
        turn()
        if number % 3 == 0:
            finish()
    for _ in range(10 * len(arrivals)):
        if not state.live:
            break
        now += 1.0
        finish()
        turn()
    assert state.live == {}
    return seen
