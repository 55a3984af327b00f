"""The scheduler as a process on a real broker and Redis, and a world of one sampler and one verifier around it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from schemas.assignments import AttemptAssigned
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.run import Domains, RunConfig, Sampler, Training
from schemas.run import Scheduler as SchedulerSection
from schemas.states import TERMINAL, TaskState
from schemas.tasks import Task, TaskSubmitted
from services.runtime import topics
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from tests.verdicts import verified

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

CARD = """
name = "echo"
layer = "foundation"
summary = "Say the word."
dataset = "words.jsonl"
[verifier]
family = "format"
[ladder]
steps = [0.0]
[timeouts]
lease_s = 3.0
verify_s = 10.0
[retry]
infra = 20
backoff_s = 0.05
backoff_max_s = 0.2
"""


class Service:
    """The scheduler's process."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.environment = environment
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.scheduler"], env=self.environment, stdout=log, stderr=log
            )

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def ask(self, *words: str) -> tuple[int, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "services.scheduler", *words, "--json"],
            env=self.environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


@pytest.fixture
def service(kafka: str, redis_url: str, prefix: str, tmp_path: Path) -> Iterator[Service]:
    cards = tmp_path / "cards"
    cards.mkdir()
    (cards / "echo.toml").write_text(CARD)
    words = [
        {"prompt": f"say {n}", "spec": {"word": n}, "gold": str(n), "difficulty": 0.0} for n in range(64)
    ]
    (cards / "words.jsonl").write_text("\n".join(json.dumps(word) for word in words))
    config = RunConfig(
        name="r",
        domains=Domains(paths=(str(cards),)),
        training=Training(group_size=2, groups_per_step=200),
        scheduler=SchedulerSection(tick_s=0.05),
        sampler=Sampler(slots=4),
    )
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    environment = os.environ | {
        "TEMPER_KAFKA": kafka,
        "TEMPER_REDIS": redis_url,
        "TEMPER_PREFIX": prefix,
        "TEMPER_CONFIG": str(tmp_path / "config.json"),
        "TEMPER_RUN_DIR": str(tmp_path),
        "TEMPER_WORKER": "scheduler-test",
    }
    asyncio.run(topics.create(kafka, prefix))
    running = Service(environment, tmp_path / "scheduler.log")
    try:
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.process.kill()
            running.process.wait(20)


class World:
    """One sampler and one verifier; `passes` decides the verdicts."""

    def __init__(self, kafka: str, prefix: str, passes: Callable[[Task], bool]) -> None:
        self.producer = Producer(kafka, prefix, "world")
        self.reader = LogReader(kafka, prefix, ["assignments.standard", "task-states"])
        self.passes = passes
        self.assigned: dict[str, AttemptAssigned] = {}
        self.records = 0
        self.states: dict[str, TaskState] = {}
        self.released: list[Released] = []
        self.beat_at = 0.0
        self.slots = 4

    async def __aenter__(self) -> Self:
        await self.producer.start()
        await self.reader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.reader.stop()
        await self.producer.stop()

    async def beat(self, **fields: Any) -> None:
        event = WorkerHeartbeat(
            worker="w",
            service="sampler",
            pool="standard",
            slots=self.slots,
            released=tuple(self.released),
            **fields,
        )
        self.released = []
        self.beat_at = time.monotonic()
        await self.producer.emit(Outgoing("heartbeats", event, "w"))

    async def submit(self, *tasks: Task) -> None:
        events = [Outgoing("tasks", TaskSubmitted(task=task), task.domain) for task in tasks]
        await self.producer.emit(*events)

    async def answer(self, assigned: AttemptAssigned) -> None:
        score = float(self.passes(assigned.task))
        events = [verified(assigned, index, score) for index in range(assigned.group_size)]
        self.released.append(Released(lease_id=assigned.lease_id, reason="finished"))
        await self.producer.emit(*(Outgoing("rewards", event, assigned.group_id) for event in events))

    async def until(self, done: Callable[[], bool], seconds: float = 30.0, *, work: bool = True) -> None:
        async with asyncio.timeout(seconds):
            while not done():
                for record in await self.reader.poll(0.02):
                    if isinstance(record.event, TaskState):
                        self.states[record.event.task_id] = record.event
                    if isinstance(record.event, AttemptAssigned):
                        self.records += 1
                        fresh = record.event.lease_id not in self.assigned
                        self.assigned[record.event.lease_id] = record.event
                        if work and fresh:
                            await self.answer(record.event)
                if self.released or time.monotonic() - self.beat_at > 0.5:
                    await self.beat()

    def ended(self, count: int) -> Callable[[], bool]:
        return lambda: sum(state.state in TERMINAL for state in self.states.values()) >= count


def tasks(count: int, start: int = 0) -> list[Task]:
    return [
        Task(id=f"t{n}", domain="echo", prompt=f"say {n}", difficulty=0.5)
        for n in range(start, start + count)
    ]


def play(
    kafka: str, prefix: str, passes: Callable[[Task], bool], scene: Callable[[World], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        async with World(kafka, prefix, passes) as world:
            await scene(world)

    asyncio.run(scenario())


def replayed(service: Service) -> dict[str, Any]:
    status, report = service.ask("replay")
    assert status == 0, report
    assert report["equal"]
    assert report["violations"] == []
    found: dict[str, Any] = report
    return found
