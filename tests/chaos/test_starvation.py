"""95 % short and 5 % long tasks at a load of 0.95, through the real fold on a simulated clock: nobody starves."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from schemas.cards import Deadline, Timeouts
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.tasks import Task, TaskSubmitted
from services.scheduler import intake
from services.scheduler.effects import Assign
from services.scheduler.fold import Batch, Input, step
from services.scheduler.policies import Policies, Policy
from services.scheduler.state import State
from tests.verdicts import verified

if TYPE_CHECKING:
    from schemas.assignments import AttemptAssigned
    from schemas.base import Event

SLOTS, TASKS, LOAD = 8, 3000, 0.95
SHORT_S, LONG_S, LONG_SHARE = 1.0, 20.0, 0.05
BEGAN = 1000.0
SLACK, CAP_S = 1.0, 10.0
"""Below what a long task takes and what is waited at this load, so that the cap decides."""
pytestmark = [pytest.mark.chaos, pytest.mark.slow]


class Simulation:
    """One pool, a clock, and what ends when."""

    def __init__(self, seed: int, *, together: bool) -> None:
        """`together`: short and long tasks are of one domain."""
        self.rng = random.Random(seed)
        policy = Policy(
            deadline=Deadline(estimate_s=SHORT_S, slack=SLACK, cap_s=CAP_S),
            timeouts=Timeouts(lease_s=80_000, verify_s=80_000),
        )
        self.policies = Policies(
            domains={"short": policy, "long": policy}, group_size=1, groups_per_step=10**9, half_life_s=300.0
        )
        self.together = together
        self.state = State()
        self.now = BEGAN
        self.running: list[tuple[float, int, AttemptAssigned]] = []
        self.released: tuple[Released, ...] = ()
        self.eligible: dict[str, float] = {}
        self.waiting: dict[str, dict[str, float]] = {"short": {}, "long": {}}
        self.waits: dict[str, list[float]] = {"short": [], "long": []}
        self.busy_s = 0.0
        self.overtaken = 0.0
        """Longest that a dispatched task was younger than one that still waited in its lane, seconds."""
        self.number = 0

    def take(self, *events: Event) -> None:
        beat = WorkerHeartbeat(
            worker="w", service="sampler", pool="standard", slots=SLOTS, released=self.released
        )
        self.released = ()
        batch = Batch(
            seq=self.state.meta.seq + 1,
            now=self.now,
            inputs=tuple(Input(event=event) for event in (beat, *events)),
        )
        for effect in step(self.state, self.policies, batch):
            if isinstance(effect, Assign):
                self.start(effect.event)

    def start(self, assigned: AttemptAssigned) -> None:
        task = assigned.task
        lane = self.waiting[task.domain]
        since = lane.pop(task.id)
        kind = "long" if task.id.startswith("long") else "short"
        self.waits[kind].append(self.now - since)
        if lane:
            self.overtaken = max(self.overtaken, since - min(lane.values()))
        seconds = LONG_S if kind == "long" else SHORT_S
        self.busy_s += seconds
        self.number += 1
        heapq.heappush(self.running, (self.now + seconds, self.number, assigned))

    def end(self, assigned: AttemptAssigned) -> None:
        self.released = (Released(lease_id=assigned.lease_id, reason="finished"),)
        self.take(verified(assigned, 0, 1.0))

    def run(self) -> None:
        mean_s = (1.0 - LONG_SHARE) * SHORT_S + LONG_SHARE * LONG_S
        arrives = self.now
        left = TASKS
        while left or self.running:
            ends = self.running[0][0] if self.running else float("inf")
            if left and arrives <= ends:
                self.now = arrives
                kind = "long" if self.rng.random() < LONG_SHARE else "short"
                domain = "short" if self.together else kind
                name = f"{kind}-{left}"
                self.waiting[domain][name] = self.now
                self.take(TaskSubmitted(task=Task(id=name, domain=domain, prompt="p", kind=kind)))
                arrives += self.rng.expovariate(LOAD * SLOTS / mean_s)
                left -= 1
            else:
                self.now, _, assigned = heapq.heappop(self.running)
                self.end(assigned)


def broken(simulation: Simulation) -> list[str]:
    """What does not hold of a finished simulation, one line each."""
    found = []
    # The bound of the order: in its lane nobody is overtaken by what became eligible more than the cap later.
    if simulation.overtaken > CAP_S:
        found.append(f"overtaken by what came {simulation.overtaken:.1f} s later")
    mean = {kind: sum(waits) / len(waits) for kind, waits in simulation.waits.items()}
    # Short first, within one lane.
    if simulation.together and mean["short"] + SHORT_S > mean["long"]:
        found.append(f"short tasks wait {mean['short']:.1f} s, long ones {mean['long']:.1f} s")
    # Between domains: what asks for no more than its share waits for a few of its own attempts at most on average.
    for kind, waits in simulation.waits.items():
        if mean[kind] > 10 * LONG_S or max(waits) > 40 * LONG_S:
            found.append(f"{kind} tasks wait {mean[kind]:.1f} s on average, {max(waits):.1f} s at most")
    return found


@pytest.mark.parametrize("together", [True, False], ids=["one domain", "two domains"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nobody_starves(seed: int, *, together: bool) -> None:
    simulation = Simulation(seed, together=together)
    simulation.run()
    assert len(simulation.waits["short"]) + len(simulation.waits["long"]) == TASKS
    assert len(simulation.state.ended) == TASKS
    # It was as busy, and as mixed, as it says.
    assert 0.88 < simulation.busy_s / (SLOTS * (simulation.now - BEGAN)) <= 1.0
    assert len(simulation.waits["long"]) / TASKS == pytest.approx(LONG_SHARE, abs=0.01)
    assert broken(simulation) == []


Order = Callable[[float, float, int, Deadline], float]
MUTANTS: dict[str, Order] = {
    "no cap": lambda since, seconds, _, rule: since + rule.slack * seconds,
    "deadlines ignored": lambda *_: 0.0,
    "long always last": lambda since, seconds, *_: since + 1e6 * seconds,
    "newest first": lambda since, *_: -since,
    "no ageing": lambda _, seconds, __, rule: min(rule.slack * seconds, rule.cap_s),
    "long first": lambda since, seconds, _, rule: since - min(rule.slack * seconds, rule.cap_s),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_another_order_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "virtual_deadline", MUTANTS[name])
    simulation = Simulation(1, together=True)
    simulation.run()
    assert broken(simulation) != []
