"""Rounds of `temper bench pipeline`. Invariant: each round does the same tasks with every system, one after the other.

A task counts from its submission until it is over: for us until the scheduler holds it as succeeded (which takes an
assignment, a lease given back and a verdict, all through the log); for a peer until its function has been called, since nobody
is told of the end there. The time of the first submission to the last end gives the tasks a second, submission included.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import redis

from services.runtime import topics
from services.runtime.measures import Figure, describe_machine, figure, percentile, ratio
from services.runtime.stack import Stack
from services.scheduler.bench import systems
from services.scheduler.bench.board import Board
from services.scheduler.bench.names import DOMAINS, OURS
from services.scheduler.bench.submitter import Request
from services.scheduler.bench.systems import BenchError, System

WARM = 500
"""Tasks before those that are measured, so that connections, caches and processes are there."""
IDLE = 100
"""Single tasks submitted to a system that has nothing else to do."""
IDLE_PAUSE_S = 0.05
DEADLINE_S = 120.0
SLOWEST_PER_S = 50.0
"""A system slower than this is called stuck."""
DATABASES = {OURS: 0, "celery": 1, "dramatiq": 2, "arq": 3}


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    tasks: int
    peer_tasks: int
    rounds: int
    parallel: int
    """Worker processes of a peer."""
    window: int
    """Leases at a time with us, tasks fetched ahead with a peer."""
    peers: tuple[str, ...]


@dataclass
class Cell:
    """What one system did in one round."""

    per_s: float
    submit_per_s: float
    cpu_us: dict[str, float]
    """Processor microseconds for each task of the backlog, by process."""
    idle_s: list[float] = field(default_factory=list)
    """Seconds from submission until a worker had the task, one at a time."""


class Bench:
    """The broker, Redis and a folder for the whole benchmark."""

    def __init__(self, stack: Stack, folder: Path, plan: Plan) -> None:
        self._stack, self._folder, self._plan = stack, folder, plan
        self._cards = folder / "cards"
        systems.write_cards(self._cards)

    @contextmanager
    def _board(self, count: int) -> Iterator[Board]:
        board = Board.create(self._folder / "board", count)
        try:
            yield board
        finally:
            board.close()

    def ours(self, number: int) -> Cell:
        """Our system, on topics of this round's own."""
        plan = self._plan
        prefix = f"round{number}."
        asyncio.run(topics.create(self._stack.kafka, prefix))
        config = systems.configuration(self._cards, WARM + plan.tasks + IDLE)
        client = redis.Redis.from_url(self._stack.redis)
        with self._board(WARM + plan.tasks + IDLE) as board:
            system = systems.ours(board, self._folder, self._stack, prefix, config, plan.window)
            with system:
                cell = measure(
                    self._stack,
                    system,
                    board,
                    plan.tasks,
                    lambda until: _ended(client, prefix) >= until,
                    patient=True,
                )
        states = systems.finished(client, prefix)
        if states != {"succeeded": WARM + plan.tasks + IDLE}:
            raise BenchError(f"{OURS}: {WARM + plan.tasks + IDLE} tasks were submitted, they ended {states}")
        client.delete(*client.keys(f"temper:{prefix}*"))
        client.close()
        return cell

    def peer(self, name: str) -> Cell:
        """A peer, on a database of its own that is empty before and after."""
        plan = self._plan
        base, _, _ = self._stack.redis.rpartition("/")
        url = f"{base}/{DATABASES[name]}"
        client = redis.Redis.from_url(url)
        client.flushdb()
        count = WARM + plan.peer_tasks + IDLE
        with self._board(count) as board:
            with systems.peer(name, board, self._folder, url, plan.parallel, plan.window) as system:
                cell = measure(
                    self._stack, system, board, plan.peer_tasks, lambda until: all(board.begun(0, until))
                )
            if not all(board.begun(0, count)):
                raise BenchError(f"{name}: tasks were lost")
        client.flushdb()
        client.close()
        return cell

    def round(self, number: int) -> dict[str, Cell]:
        """Every system once, in an order of this round's own."""
        order = [OURS, *self._plan.peers]
        random.Random(number).shuffle(order)
        found = {}
        for name in order:
            found[name] = self.ours(number) if name == OURS else self.peer(name)
            cell = found[name]
            say(f"  {name}: {cell.per_s:.0f} tasks/s, idle {1000 * percentile(cell.idle_s, 0.5):.1f} ms")
        return found


def _ended(client: redis.Redis, prefix: str) -> int:
    return sum(systems.finished(client, prefix).values())


def measure(
    stack: Stack,
    system: System,
    board: Board,
    tasks: int,
    over: Callable[[int], bool],
    *,
    patient: bool = False,
) -> Cell:
    """Warm up, then a backlog, then single tasks; `over(n)`: whether the first n tasks are over. Raises BenchError.

    `patient`: what `over` looks at may be some tenths of a second behind, so single tasks are told by the board alone.
    """
    system.submit(Request(0, WARM))
    system.submitted()
    system.await_(lambda: over(WARM), "the first tasks", DEADLINE_S)
    before = system.cpu_s() | systems.server_cpu_s(stack)
    system.submit(Request(WARM, tasks))
    system.submitted()
    submitted_at = time.monotonic()
    deadline = DEADLINE_S + tasks / SLOWEST_PER_S
    ended_at = system.await_(lambda: over(WARM + tasks), f"{tasks} tasks", deadline)
    after = system.cpu_s() | systems.server_cpu_s(stack)
    begun_at = board.submitted(WARM, 1)[0]
    first = WARM + tasks
    system.submit(Request(first, IDLE, IDLE_PAUSE_S))
    system.submitted()
    system.await_(lambda: all(board.begun(first, IDLE)), "single tasks", DEADLINE_S)
    if patient:
        system.await_(lambda: over(first + IDLE), "the end of single tasks", DEADLINE_S)
    pairs = zip(board.submitted(first, IDLE), board.begun(first, IDLE), strict=True)
    return Cell(
        per_s=tasks / (ended_at - begun_at),
        submit_per_s=tasks / (submitted_at - begun_at),
        cpu_us={name: 1e6 * (after[name] - before[name]) / tasks for name in before},
        idle_s=[begun - submitted for submitted, begun in pairs],
    )


def figures(rounds: Sequence[dict[str, Cell]]) -> dict[str, Figure]:
    """`pipeline.*` and `idle.*` of ours with ratios to the peers, and each peer's own."""
    peers = [name for name in rounds[0] if name != OURS]
    found: dict[str, Figure] = {}

    def add(name: str, unit: str, of: Any) -> None:
        columns = {system: [float(of(each[system])) for each in rounds] for system in rounds[0]}
        found[name] = figure(
            columns[OURS], unit, {peer: ratio(columns[OURS], columns[peer]) for peer in peers}
        )
        head, _, tail = name.partition(".")
        found.update({f"{head}.{peer}.{tail}": figure(columns[peer], unit) for peer in peers})

    add("pipeline.per_s", "tasks/s", lambda cell: cell.per_s)
    add("pipeline.submit_per_s", "tasks/s", lambda cell: cell.submit_per_s)
    add("idle.p50_ms", "ms", lambda cell: 1000 * percentile(cell.idle_s, 0.50))
    add("idle.p99_ms", "ms", lambda cell: 1000 * percentile(cell.idle_s, 0.99))
    for part in rounds[0][OURS].cpu_us:
        found[f"cpu.{part}.us"] = figure([each[OURS].cpu_us[part] for each in rounds], "us/task")
    for peer in peers:
        totals = [sum(each[peer].cpu_us.values()) for each in rounds]
        found[f"cpu.{peer}.us"] = figure(totals, "us/task")
    return found


def run(plan: Plan) -> dict[str, Any]:
    """The document of the benchmark, on servers of its own: peers' databases are emptied. Raises BenchError, StackError."""
    with tempfile.TemporaryDirectory(prefix="temper-bench-") as name:
        folder = Path(name)
        with Stack.start(folder / "stack", environ={}) as stack:
            bench = Bench(stack, folder, plan)
            rounds = []
            for number in range(plan.rounds):
                say(f"round {number + 1} of {plan.rounds}")
                rounds.append(bench.round(number))
    machine = describe_machine(
        tasks=plan.tasks,
        peer_tasks=plan.peer_tasks,
        domains=DOMAINS,
        parallel=plan.parallel,
        window=plan.window,
        absent_peers=systems.absent(),
    )
    return {"bench": "pipeline", "machine": machine, "figures": msgspec.to_builtins(figures(rounds))}


def say(text: str) -> None:
    """Progress, to standard error."""
    sys.stderr.write(f"bench pipeline: {text}\n")
    sys.stderr.flush()
