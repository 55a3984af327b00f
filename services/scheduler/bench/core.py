"""What a decision costs in the process. Invariant: what is timed is the fold itself, on tasks that came in as bytes like any.

A decision is a lease given, the task moved and both effects made, by the same `dispatch` that the scheduler calls. The floor
is a bare `heapq` that holds the same tasks and knows no domain, quota, lease or effect. Both are timed in turns within a round,
in seconds of this thread's core, garbage collection included, so that what else the machine does is not counted.
"""

from __future__ import annotations

import gc
import heapq
import random
import sys
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemas.cards import Deadline, Timeouts
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.tasks import Task, TaskSubmitted
from schemas.verdicts import Part, scored
from services.runtime.measures import Figure, figure, percentile, ratio
from services.scheduler.dispatch import dispatch
from services.scheduler.effects import Assign
from services.scheduler.fold import fold, tick
from services.scheduler.policies import Policies, Policy
from services.scheduler.state import State

FEW = 10_000
"""Backlog that the growth of the cost is taken from."""
DECISIONS = 50_000
"""Decisions a figure is taken over, at most: half the backlog."""
AT_ONCE = 256
"""Leases a call of `dispatch`, for the rate; for the percentiles it is one."""
TRACED = 50_000
"""Tasks whose memory is traced object by object, which would take minutes for all."""
SEED = 20
_decode = msgspec.msgpack.Decoder(TaskSubmitted)


VARIANTS = ("plain", "cohorts", "random")
"""Backlogs: as most come; with every domain in a cohort and most of them borrowing; with priorities that follow no order."""
COHORTS = 10


def run(
    *, tasks: int = 1_000_000, rounds: int = 3, domains: int = 300, variants: Sequence[str] = VARIANTS
) -> dict[str, Figure]:
    """Figures for a backlog of `tasks` in `domains`; all are of this process, on one core."""
    return figures(tasks=tasks, rounds=rounds, domains=domains, variants=variants)


def figures(
    *, tasks: int = 1_000_000, rounds: int = 3, domains: int = 300, variants: Sequence[str] = VARIANTS
) -> dict[str, Figure]:
    """Rates, percentiles, memory and growth of each variant, each over `rounds` rounds; all variants within a round."""
    columns: dict[str, dict[str, list[float]]] = {variant: {} for variant in variants}
    for number in range(rounds):
        for variant in variants:
            say(f"round {number + 1} of {rounds}, {variant}")
            for name, value in _measured(tasks, domains, variant).items():
                columns[variant].setdefault(name, []).append(value)
            gc.collect()
    found: dict[str, Figure] = {}
    for variant, column in columns.items():
        prefix = "" if variant == "plain" else f"{variant}."
        found |= {prefix + name: value for name, value in _figures(column, tasks).items()}
    return found


def _measured(tasks: int, domains: int, variant: str) -> dict[str, float]:
    """One round of one variant."""
    found = {"memory.traced_bytes": _traced(domains, variant)}
    small = Backlog(min(FEW, tasks), domains, variant)
    found["growth.few_us"] = 1e6 / small.rate()
    del small
    backlog = Backlog(tasks, domains, variant)
    found["memory.rss_bytes"] = backlog.rss_bytes
    found["submit.rate"] = backlog.submitted_a_second
    found["decide.rate"] = backlog.rate()
    found["decide.floor"] = backlog.floor()
    took = backlog.singles()
    found["decide.p50_us"] = percentile(took, 0.50) * 1e6
    found["decide.p99_us"] = percentile(took, 0.99) * 1e6
    found["decide.most_us"] = max(took) * 1e6
    found["cycle.rate"] = backlog.cycles()
    found["growth.many_us"] = 1e6 / found["decide.rate"]
    return found


def _figures(columns: Mapping[str, list[float]], tasks: int) -> dict[str, Figure]:
    rate, floor = columns["decide.rate"], columns["decide.floor"]
    growth = [
        many / few for many, few in zip(columns["growth.many_us"], columns["growth.few_us"], strict=True)
    ]
    return {
        "decide.rate": figure(rate, "decisions/s", {"heapq": ratio(rate, floor)}),
        "decide.p50": figure(columns["decide.p50_us"], "us"),
        "decide.p99": figure(columns["decide.p99_us"], "us"),
        "decide.most": figure(columns["decide.most_us"], "us"),
        "cycle.rate": figure(columns["cycle.rate"], "tasks/s"),
        "submit.rate": figure(columns["submit.rate"], "tasks/s"),
        "memory.rss": figure(columns["memory.rss_bytes"], "bytes/task"),
        "memory.traced": figure(columns["memory.traced_bytes"], "bytes/task"),
        f"growth.{min(FEW, tasks)}": figure(columns["growth.few_us"], "us/decision"),
        f"growth.{tasks}": figure(columns["growth.many_us"], "us/decision"),
        "growth.times": figure(growth, "times"),
    }


class Backlog:
    """A state with ready tasks."""

    def __init__(self, tasks: int, domains: int, variant: str = "plain") -> None:
        self.tasks, self.now = tasks, 1_000_000.0
        rng = random.Random(SEED)
        self.policies = Policies(
            domains={
                f"domain-{number:03}": Policy(
                    weight=float(rng.randint(1, 5)),
                    deadline=Deadline(estimate_s=float(rng.randint(1, 60))),
                    timeouts=Timeouts(lease_s=3600.0),
                    **_quota(variant, number, domains, tasks),
                )
                for number in range(domains)
            },
            eta=1 << 40,
            group_size=8,
            ready_cap=1 << 40,
            worker_timeout_s=1e9,
        )
        self.state = State()
        names = sorted(self.policies.domains)
        gc.collect()
        before, begun = _rss(), time.thread_time()
        for number in range(tasks):
            self.now += 0.001
            priority = rng.randint(-100, 100) if variant == "random" else 0
            event = _decode.decode(_submission(number, names[number % domains], priority))
            fold(self.state, self.policies, event, self.now)
            if number % 10_000 == 0:
                self.state.changed.clear()  # as it is after each write of the projection
        self.state.changed.clear()
        self.submitted_a_second = tasks / (time.thread_time() - begun)
        gc.collect()
        self.rss_bytes = (_rss() - before) / tasks

    def _slots(self, free: int) -> None:
        leases = self.state.occupied.get("standard")
        slots = free + (0 if leases is None else leases.slots)
        beat = WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=slots)
        fold(self.state, self.policies, beat, self.now)

    def _given(self, free: int) -> tuple[int, float]:
        """Leases given to `free` more slots, and the seconds that took."""
        self.now += 0.001
        self._slots(free)
        begun = time.thread_time()
        effects = dispatch(self.state, self.policies, self.now)
        took = time.thread_time() - begun
        self.state.changed.clear()
        return sum(isinstance(effect, Assign) for effect in effects), took

    def rate(self) -> float:
        """Decisions a second, many a call."""
        done, seconds = 0, 0.0
        while done < min(DECISIONS, self.tasks // 4):
            given, took = self._given(AT_ONCE)
            if not given:
                raise RuntimeError(f"the backlog of {self.tasks} tasks was used up after {done} decisions")
            done, seconds = done + given, seconds + took
        return done / seconds

    def singles(self) -> list[float]:
        """Seconds of decisions, one a call."""
        return [self._given(1)[1] for _ in range(min(DECISIONS, self.tasks // 4))]

    def floor(self) -> float:
        """Tasks a second that a bare heap gives out, of as many."""
        heap = [
            (entry.deadline, entry.order, entry.id)
            for entry in self.state.live.values()
            if entry.state == "ready"
        ]
        heapq.heapify(heap)
        count = min(DECISIONS, self.tasks // 4)
        begun = time.thread_time()
        for _ in range(count):
            heapq.heappop(heap)
        return count / (time.thread_time() - begun)

    def cycles(self) -> float:
        """Tasks a second from the lease through heartbeat, release and verdicts to the end, the next lease included."""
        count = min(DECISIONS, self.tasks // 4) // AT_ONCE
        done, begun = 0, time.thread_time()
        for _ in range(count):
            self.now += 0.001
            self._slots(AT_ONCE)
            given = [
                effect for effect in tick(self.state, self.policies, self.now) if isinstance(effect, Assign)
            ]
            leases = self.state.occupied["standard"].slots
            released = tuple(Released(lease_id=one.lease_id, reason="finished") for one in given)
            beat = WorkerHeartbeat(
                worker="w", service="sampler", pool="standard", slots=leases, released=released
            )
            fold(self.state, self.policies, beat, self.now)
            for one in given:
                for index in range(one.group_size):
                    fold(self.state, self.policies, _verdict(one, index), self.now)
            done += len(given)
            self.state.changed.clear()
        return done / (time.thread_time() - begun)


def _quota(variant: str, number: int, domains: int, tasks: int) -> dict[str, Any]:
    """A third of a cohort's domains own slots, enough for all that is given out; the others borrow them."""
    if variant != "cohorts":
        return {}
    cohorts = max(1, min(COHORTS, domains // 3))
    owns = number // cohorts % 3 == 0
    return {"cohort": f"cohort-{number % cohorts}", "nominal": tasks if owns else 0}


def _submission(number: int, domain: str, priority: int) -> bytes:
    """A task as a producer writes it: a prompt of a line, what a verifier compares with, a key of its own."""
    task = Task(
        id=f"task-{number:012}",
        domain=domain,
        prompt=f"A train goes {number % 97} km in {1 + number % 7} hours; how far does it go in {number % 13} hours?",
        spec={"answer": str(number % 97), "tolerance": 0.01},
        batch="backlog",
    )
    return msgspec.msgpack.encode(TaskSubmitted(task=task, priority=priority))


_verdict_one = scored([Part(name="answer", weight=1.0, score=1.0)])


def _verdict(assign: Assign, index: int) -> TrajectoryVerified:
    return TrajectoryVerified(
        trajectory_id=trajectory_id(assign.task_id, assign.attempt, index),
        task_id=assign.task_id,
        domain="domain-000",
        purpose="train",
        attempt=assign.attempt,
        group_id=assign.lease_id,
        group_size=assign.group_size,
        index=index,
        lease_id=assign.lease_id,
        content="c",
        verdict=_verdict_one,
    )


def _traced(domains: int, variant: str = "plain") -> float:
    """Bytes of Python objects a task."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    backlog = Backlog(TRACED, domains, variant)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return size / backlog.tasks


def _rss() -> int:
    """Resident bytes of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def say(text: str) -> None:
    """Progress, to standard error."""
    sys.stderr.write(f"bench scheduler: {text}\n")
    sys.stderr.flush()
