"""One killer among many innocents: it ends dead for that reason within its budget, and no innocent ends dead.

The scheduler's fold and the sampler's intake are the real ones; what is made up is when an engine dies, and who says so.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.cards import Retry, Timeouts
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.tasks import PolicyRef, Task, TaskSubmitted
from services.sampler.intake import Intake, Start
from services.scheduler.blame import fewer
from services.scheduler.effects import Assign, Effect, Revoke
from services.scheduler.fold import fold, tick
from services.scheduler.invariants import invariant
from services.scheduler.policies import Policies, Policy
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.verdicts import judged

LEASE_S, PERIOD_S = 30.0, 1.0
RETRY = Retry(infra=3, kills=2, backoff_s=0.1, backoff_max_s=1.0)
MARKS = ("engine", "memory", "signal", "restart", "silent")
"""How the end of a worker becomes known: its own last word, its supervisor's, its successor's, or not at all."""


@dataclass
class Sampler:
    """A worker process: the intake decides what is in its engine; each group takes some rounds there."""

    name: str
    slots: int
    started_at: float
    intake: Intake = field(init=False)
    left: dict[str, int] = field(default_factory=dict)
    released: list[Released] = field(default_factory=list)
    told: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.intake = Intake(slots=self.slots, capacity=4 * self.slots)
        self.intake.loaded(PolicyRef(version=0, uri="base", digest=""))


class World:
    """Workers around one fold."""

    def __init__(
        self,
        rng: random.Random,
        *,
        workers: int,
        slots: int,
        marks: tuple[str, ...],
        pid: bool,
        violence: float = 0.7,
        longest: int = 4,
    ) -> None:
        """`violence`: chance of a killer to end its engine in a round; `longest`: rounds that others take there."""
        self.rng, self.slots, self.marks, self.pid = rng, slots, marks, pid
        self.violence, self.longest = violence, longest
        self.state, self.now, self.serial = State(), 1000.0, 0
        self.table = Policies(
            domains={"a": Policy(retry=RETRY, timeouts=Timeouts(lease_s=LEASE_S, attempt_s=36_000.0))},
            group_size=1,
            eta=100_000,
            verify_backlog=0,
        )
        self.killers: set[str] = set()
        self.names: dict[str, str] = {}
        self.deaths = 0
        self.reports: list[tuple[float, WorkerHeartbeat]] = []
        self.samplers = [self.process(f"w{n}") for n in range(workers)]

    def process(self, name: str) -> Sampler:
        self.serial += 1
        return Sampler(name, self.slots, self.now + self.serial * 1e-6)

    def send(self, event: Any) -> None:
        self.take(fold(self.state, self.table, event, self.now))

    def take(self, effects: list[Effect]) -> None:
        taken: list[Sampler] = []
        for effect in effects:
            if isinstance(effect, Assign):
                self.names[effect.lease_id] = effect.task_id
                taken.append(self.rng.choice(self.samplers))
                taken[-1].intake.offer(effect.event, self.now, self.now)
            elif isinstance(effect, Revoke):
                for sampler in self.samplers:
                    sampler.intake.end(effect.event.lease_id)
                    sampler.left.pop(effect.event.lease_id, None)
        assert invariant(self.state) == []
        for sampler in taken:
            if self.rng.random() < 0.7:  # a moment later, unless it ends within it
                self.beat(sampler)

    def beat(self, sampler: Sampler) -> None:
        inside = sampler.intake.inside()
        event = WorkerHeartbeat(
            worker=sampler.name,
            service="sampler",
            pool="standard",
            slots=self.slots,
            leases=sampler.intake.held(),
            running=tuple(inside),
            released=tuple(sampler.released),
            started_at=sampler.started_at,
            pid=round(sampler.started_at * 1e6) % 1_000_003 if self.pid else 0,
        )
        sampler.intake.renewed(event.leases, self.now)
        sampler.released.clear()
        sampler.told = inside
        self.send(event)

    def work(self, sampler: Sampler) -> None:
        """One round in an engine."""
        for action in sampler.intake.decide(self.now):
            assert isinstance(action, Start)
            lease = action.assigned.lease_id
            if action.assigned.company or any((sampler.intake.inside() | sampler.told).values()):
                self.beat(sampler)
            if lease in sampler.intake.inside():
                sampler.left[lease] = self.rng.randint(1, self.longest)
        for lease in list(sampler.left):
            task = self.names[lease]
            if task in self.killers and self.rng.random() < self.violence:
                self.die(sampler)
                return
            sampler.left[lease] -= task not in self.killers
            if not sampler.left.get(lease):
                self.done(sampler, lease, task)

    def done(self, sampler: Sampler, lease: str, task: str) -> None:
        del sampler.left[lease]
        sampler.intake.end(lease)
        sampler.released.append(Released(lease_id=lease, reason="finished"))
        entry = self.state.live[task]
        self.send(judged(task, 1.0, entry.attempt, lease=lease))

    def die(self, sampler: Sampler) -> None:
        self.deaths += 1
        how = self.rng.choice(self.marks)
        at = self.samplers.index(sampler)
        gone = WorkerHeartbeat(
            worker=sampler.name,
            service="sampler",
            ended="signal" if how == "signal" else "memory",
            pid=round(sampler.started_at * 1e6) % 1_000_003 if self.pid else 0,
        )
        self.samplers[at] = self.process(sampler.name if how != "silent" else f"n{self.serial}")
        if how == "engine":
            # It says so itself, hands back what only waited, and is reported as ended by its supervisor, too.
            inside = tuple(sampler.intake.inside())
            sampler.released += [
                Released(lease_id=lease, reason="killed", company=len(inside)) for lease in inside
            ]
            for lease in sampler.intake.held():
                sampler.intake.end(lease)
            waiting = [lease for lease in self.waiting(sampler.name) if lease not in inside]
            sampler.released += [Released(lease_id=lease, reason="abandoned") for lease in waiting]
            event = WorkerHeartbeat(
                worker=sampler.name,
                service="sampler",
                pool="standard",
                released=tuple(sampler.released),
                draining=True,
                started_at=sampler.started_at,
            )
            self.send(event)
            self.send(event)
            for lease in waiting:
                self.abandon(lease)
        if how in ("engine", "memory", "signal"):
            self.send(gone)
            if self.rng.random() < 0.5:
                self.send(gone)
            if self.pid:  # a supervisor that is late, or says it twice
                self.reports.append((self.now + self.rng.random() * 5.0, gone))

    def waiting(self, worker: str) -> list[str]:
        return [lease for lease, task in self.state.leases.items() if self.state.live[task].worker == worker]

    def abandon(self, lease: str) -> None:
        """The verdict on work that was given back."""
        task = self.state.leases.get(lease)
        if task is None:
            return
        entry = self.state.live[task]
        self.send(judged(task, None, entry.attempt, lease=lease))

    def run(self, tasks: int, most: int = 4000) -> None:
        for n in range(tasks):
            self.send(TaskSubmitted(task=Task(id=f"t{n}", domain="a", prompt="p")))
        for sampler in self.samplers:
            self.beat(sampler)
        for _ in range(most):
            self.now += PERIOD_S
            self.take(tick(self.state, self.table, self.now))
            for sampler in list(self.samplers):
                if sampler in self.samplers:
                    self.work(sampler)
            for sampler in self.samplers:
                self.beat(sampler)
            for at, late in [report for report in self.reports if report[0] <= self.now]:
                self.reports.remove((at, late))
                self.send(late)
            if not self.state.live:
                return
        pytest.fail(f"{len(self.state.live)} tasks are still live: {list(self.state.live.values())[:3]}")


def steps(slots: int) -> int:
    """Losses that are shared before whoever is to blame is alone, of a worker that holds four groups a slot."""
    held, found = 4 * slots, 0
    while held > 1:
        held, found = fewer(held, held), found + 1
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 6),
    st.tuples(st.floats(0.1, 1.0), st.integers(1, 12)),
    st.lists(st.sampled_from(MARKS), min_size=1, max_size=5, unique=True),
    st.sampled_from(("pid", "")),
)
def test_the_killers_end_dead_and_nobody_else(
    seed: int, workers: int, slots: int, killers: int, pace: tuple[float, int], marks: list[str], named: str
) -> None:
    rng = random.Random(seed)
    world = World(
        rng,
        workers=workers,
        slots=slots,
        marks=tuple(marks),
        pid=named == "pid",
        violence=pace[0],
        longest=pace[1],
    )
    world.killers = {f"t{n}" for n in rng.sample(range(40), killers)}
    world.run(40)
    ended = world.state.ended
    assert {name for name, end in ended.items() if end.state == "dead"} == world.killers
    assert {end.cause for name, end in ended.items() if name in world.killers} == {"killed"}
    assert all(end.state == "succeeded" for name, end in ended.items() if name not in world.killers)
    assert world.deaths <= killers * (steps(slots) + 1 + RETRY.infra + 1)
    assert snapshot(restore(snapshot(world.state))) == snapshot(world.state)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10_000), st.integers(0, 100))
def test_suspects_have_fewer_beside_them_each_time_until_they_are_alone(sharing: int, company: int) -> None:
    found = [fewer(company, sharing)]
    while found[-1] > 1:
        found.append(fewer(found[-1], found[-1]))
    assert found[-1] == 1
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found) <= 5
