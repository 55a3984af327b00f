"""Every service of a long task, and the hand that kills them. Invariant: whoever is killed is killed at a stage seen on the log.

Scheduler, sampler, two verifiers under the supervisor that `temper run` has, a broker and a Redis of their own: all real.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import msgspec

from schemas.heartbeats import Service
from schemas.rewards import StageVerified
from schemas.run import Domains, Model, RunConfig, Sampler, Verifier
from schemas.states import TERMINAL, TaskState
from schemas.tasks import TaskSubmitted
from schemas.topics import HEARTBEATS, POOLS, TASKS
from services.console.processes import Services
from services.runtime import topics
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.runtime.wire import Record
from tests.chaos.speaker import STAGES, long_task, speaker
from tests.chaos.suite.plays.outages import SERVER_KILLED

DEADLINE_S, BACK_S = 400.0, 60.0
PROJECT = Path(__file__).resolve().parents[2]
CARD = """
name = "t.long"
layer = "long_horizon"
summary = "Fifty stages."
generator = "g.py:f"
[verifier]
family = "stages"
[sampling]
max_tokens = 64
[timeouts]
lease_s = 10.0
verify_s = 90.0
[retry]
backoff_s = 0.1
"""
WORKERS: dict[str, Service] = {
    "scheduler": "scheduler",
    "sampler-0": "sampler",
    "verifier-0": "verifier",
    "verifier-1": "verifier",
}
PLAN: dict[int, tuple[str, ...]] = {
    3: ("scheduler",),
    7: ("verifier",),
    12: ("sampler-0",),
    17: ("redis",),
    22: ("scheduler", "sampler-0", "verifier-0", "verifier-1", "broker"),
    28: ("verifier",),
    33: ("scheduler", "sampler-0"),
    38: ("broker",),
}
"""Stages seen on the log -> who is killed then; `verifier` is the one that ran the last of them, and stays away until the other
has committed one."""
FIRST = "sampler:mid-generation:20"
"""And before the first of them: the sampler, in the middle of the answer."""
BEGINS = re.compile(r"stage (\d+) of (\S+) \S+ begins")
WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


class Chain:
    """All processes, what has been read of the log, and the hand that kills."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "stack"
        self.broker = KafkaServer.start(self.root)
        self.redis = RedisServer.start(self.root)
        cards = folder / "cards"
        cards.mkdir()
        (cards / "t.long.toml").write_text(CARD)
        self.config = RunConfig(
            name="long",
            model=Model(path=str(speaker(folder / "model"))),
            domains=Domains(paths=(str(cards),)),
            sampler=Sampler(engine="torch", threads=1, slots=2, max_model_len=64, max_num_seqs=2),
            verifier=Verifier(slots=1, reverify=0.0),
        )
        (folder / "config.json").write_bytes(msgspec.json.encode(self.config))
        self.marks = folder / "marks"
        self.marks.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TEMPER_")}
        environment |= {
            "PYTHONPATH": str(PROJECT),
            "TEMPER_KAFKA": self.broker.bootstrap,
            "TEMPER_REDIS": self.redis.url,
            "TEMPER_CONFIG": str(folder / "config.json"),
            "TEMPER_RUN_DIR": str(folder / "run"),
            "TEMPER_BLOBS": str(folder / "blobs"),
            "TEMPER_FAULT": FIRST,
            "TEMPER_FAULT_DIR": str(self.marks),
        }
        self.services = {
            name: Services({name: service}, environment, folder / "logs") for name, service in WORKERS.items()
        }
        self.away: set[str] = set()
        """Those that nobody starts again for now."""
        self.log: list[Record] = []
        self.killed: Counter[str] = Counter()
        self.notes: list[str] = []

    @property
    def committed(self) -> dict[int, StageVerified]:
        """Stages by number, as first told."""
        found: dict[int, StageVerified] = {}
        for record in self.log:
            if isinstance(record.event, StageVerified):
                found.setdefault(record.event.stage, record.event)
        return found

    async def strike(self, victims: tuple[str, ...]) -> None:
        """Kill them all at once, the processes first; what nobody supervises is started again on its data and port."""
        last = self.committed[max(self.committed)].worker
        names = [last if victim == "verifier" else victim for victim in victims]
        for name in names:
            if name in WORKERS:
                os.kill(self.services[name].pids()[name], signal.SIGKILL)
            else:
                (self.broker if name == "broker" else self.redis).process.signal(signal.SIGKILL)
            self.killed[name] += 1
        if victims == ("verifier",):
            self.away.add(last)
        if "broker" in names:
            assert await asyncio.to_thread(self.broker.process.wait, BACK_S) == SERVER_KILLED
            port = int(self.broker.bootstrap.rpartition(":")[2])
            self.broker = await asyncio.to_thread(KafkaServer.start, self.root, port=port)
        if "redis" in names:
            assert await asyncio.to_thread(self.redis.process.wait, BACK_S) == SERVER_KILLED
            port = int(self.redis.url.rpartition(":")[2].partition("/")[0])
            self.redis = await asyncio.to_thread(RedisServer.start, self.root, port=port)

    async def run(self) -> None:
        """Submit the task and see it through."""
        await topics.create(self.broker.bootstrap, "", POOLS)
        for each in self.services.values():
            each.start()
        producer = Producer(self.broker.bootstrap, "", "test")
        await producer.start()
        plan = dict(PLAN)
        try:
            task = long_task()
            await producer.emit(Outgoing(topic=TASKS.name, event=TaskSubmitted(task=task), key=task.domain))
            positions: dict[str, int] = {}
            end = time.monotonic() + DEADLINE_S
            while not self.over():
                reader = LogReader(
                    self.broker.bootstrap, "", ["rewards", "task-states"], start=positions or "earliest"
                )
                try:
                    await reader.start()
                    while not self.over():
                        assert time.monotonic() < end, self.story()
                        self.log += await reader.poll(0.05)
                        positions = reader.positions()
                        await producer.emit(*await self.watch())
                        seen = len(self.committed)
                        due = [at for at in plan if at <= seen]
                        if due and all(each.pids() for each in self.services.values()):
                            await self.strike(plan.pop(min(due)))
                except Unavailable as error:  # the broker is away: that is what is tried here
                    self.notes.append(f"the log cannot be read for now: {error}")
                finally:
                    await reader.stop()
        finally:
            await producer.stop()

    async def watch(self) -> list[Outgoing]:
        """Start again what has died; what is to be said of it."""
        if self.committed and self.committed[max(self.committed)].worker not in self.away:
            self.away.clear()
        told: list[Outgoing] = []
        for name, each in self.services.items():
            if name not in self.away:
                self.notes += await asyncio.to_thread(each.watch)
                told += [Outgoing(topic=HEARTBEATS.name, event=beat, key=beat.worker) for beat in each.gone]
                each.gone = []
        return told

    def stop(self) -> None:
        for each in self.services.values():
            each.stop()

    def over(self) -> bool:
        return any(
            isinstance(record.event, TaskState) and record.event.state in TERMINAL for record in self.log
        )

    def story(self) -> str:
        """For whoever has to find out why it did not end."""
        tails = [
            f"{path.name}: {path.read_text(errors='replace')[-800:]}"
            for path in self.folder.glob("logs/*.log")
        ]
        said = [f"{len(self.committed)} stages after {DEADLINE_S:g} s; killed {dict(self.killed)}"]
        return "\n".join([*said, *self.notes, *tails])

    def begun(self) -> list[tuple[float, int, str, str]]:
        """(when, stage, whose, by whom) of every stage that a verifier began, from what the verifiers wrote."""
        found = []
        for path in sorted(self.folder.glob("logs/verifier-*.log")):
            for line in path.read_text(errors="replace").splitlines():
                said, when = BEGINS.search(line), WHEN.search(line)
                if said and int(said[1]) < STAGES:  # after the last only the verdict is left
                    assert when, line
                    at = datetime.fromisoformat(when[0]).timestamp()
                    found.append((at, int(said[1]), said[2], path.stem))
        return sorted(found)

    def close(self) -> None:
        self.stop()
        try:
            self.broker.stop()
        finally:
            self.redis.stop()
