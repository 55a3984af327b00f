"""One training run from start to report. Invariant: whatever happens, what was started is stopped, and a second start goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from enum import StrEnum
from itertools import islice
from pathlib import Path

import msgspec

from schemas.checkpoints import CheckpointPublished
from schemas.ids import event_id
from schemas.run import RunConfig
from schemas.tasks import TaskCancelled, TaskSubmitted
from schemas.topics import (
    CHECKPOINTS,
    EVALUATIONS,
    HEARTBEATS,
    POOLS,
    REWARDS,
    TASK_STATES,
    TASKS,
)
from services.console import connection, outside
from services.console.errors import ConsoleError
from services.console.feed import CHUNK, chunk_seed, due, interleave, lacking
from services.console.live import Screen
from services.console.processes import Services, roster
from services.console.report import write_report
from services.console.stall import STALLED_S, patience_s
from services.console.view import View, observe
from services.runtime import settings, telemetry, topics
from services.runtime.catalog import Catalog
from services.runtime.consumer import LogReader
from services.runtime.fence import EpochFence
from services.runtime.producer import Outgoing, Producer
from services.runtime.stack import Stack, StackError

BATCH = "training"
SETTLE_S = 60.0
EMIT_AT_A_TIME = 500


class Phase(StrEnum):
    """Where a run is."""

    STARTING = "starting"
    BEFORE = "evaluating base"
    TRAINING = "training"
    AFTER = "evaluating final"
    SETTLING = "settling"
    SERVING = "serving"
    REPORT = "report"


class Timeline(msgspec.Struct):
    """Seconds spent in each phase, over all starts of the run."""

    phases: dict[str, float] = {}
    wall_s: float = 0.0
    restarts: dict[str, int] = {}
    finished: bool = False


class Interrupted(Exception):  # noqa: N818 (not an error: the person asked for it)
    """Ctrl-C: stop in order, keep everything."""


def choose_folder(config: RunConfig, runs: Path = connection.RUNS) -> tuple[RunConfig, Path]:
    """The run's folder: the one that an unfinished run with this very configuration left, else a new one.

    Raises:
        ConsoleError: a process still works in the folder.
    """
    for n in range(1, 10_000):
        name = config.name if n == 1 else f"{config.name}-{n}"
        named = msgspec.structs.replace(config, name=name)
        folder = runs / name
        if not folder.exists():
            return named, folder
        try:
            held = msgspec.json.decode((folder / connection.FILE).read_bytes(), type=connection.Connection)
        except (OSError, msgspec.MsgspecError):
            held = None
        if held is not None and connection.alive(held):
            continue
        stored = folder / "config.json"
        if (
            stored.exists()
            and stored.read_bytes() == settings.to_json(named)
            and not load_timeline(folder).finished
        ):
            return named, folder
    raise ConsoleError(f"{runs}: no free name for run {config.name!r}: remove old runs")


def load_timeline(folder: Path) -> Timeline:
    """The stored timeline, or an empty one."""
    try:
        return msgspec.json.decode((folder / "timeline.json").read_bytes(), type=Timeline)
    except FileNotFoundError:
        return Timeline()


class Run:
    """Drives one run."""

    def __init__(self, config: RunConfig, folder: Path, *, plain: bool, train: bool = True) -> None:
        self._config = config
        self._folder = folder.resolve()
        self._train = train
        self._timeline = load_timeline(folder)
        self._view = View()
        self._fence = EpochFence()
        self._screen = Screen(config, plain=plain)
        self._phase = Phase.STARTING
        self._phase_since = time.monotonic()
        self._submitted: Counter[str] = Counter()
        self._drawn: dict[str, list[TaskSubmitted]] = {}
        levels = len(config.training.difficulties)
        self._chunk = -(-CHUNK // levels) * levels
        self._seen_version, self._moved_at = -1, time.monotonic()
        self._stop = asyncio.Event()
        self._catalog = Catalog.load(config.domains.paths, config.domains.include, config.domains.exclude)
        if not self._catalog.cards:
            raise ConsoleError("no domain matches `domains.include`: see `temper domains ls`", 2)
        self._turns = interleave(list(self._catalog.cards.values()))

    async def execute(self) -> Path:
        """Run to the end and return the folder with the report.

        Raises:
            ConsoleError: a service or the stack cannot work.
            Interrupted: the person stopped it; the same command goes on later.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "config.json").write_bytes(settings.to_json(self._config))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        try:
            stack = await asyncio.to_thread(Stack.start, self._folder / "stack")
        except StackError as error:
            raise ConsoleError(str(error)) from error
        try:
            await self._with_stack(stack)
        finally:
            self._turn(self._phase)
            self._save()
            connection.remove(self._folder)
            await asyncio.to_thread(stack.stop)
        return self._folder

    async def _with_stack(self, stack: Stack) -> None:
        # One topic namespace a run, so that runs can share an outside broker.
        prefix = "" if stack.kafka_server is not None else f"{self._config.name}."
        link = connection.Connection(
            kafka=stack.kafka,
            redis=stack.redis,
            prefix=prefix,
            run_dir=str(self._folder),
            config=str(self._folder / "config.json"),
            pid=os.getpid(),
            started=connection.started(os.getpid()),
        )
        await topics.create(
            link.kafka,
            prefix,
            tuple(sorted({*POOLS, self._config.sampler.pool})),
            shards=self._config.scheduler.shards,
        )
        connection.write(link)
        services = Services(
            roster(self._config, evaluate=self._train), link.environment(), self._folder / "logs"
        )
        producer = Producer(link.kafka, prefix, "console")
        reader = LogReader(
            link.kafka,
            prefix,
            [CHECKPOINTS.name, REWARDS.name, TASK_STATES.name, HEARTBEATS.name, EVALUATIONS.name],
            start="earliest",
        )
        try:
            await asyncio.to_thread(services.start)
            await producer.start()
            await reader.start()
            with self._screen:
                await self._drive(services, producer, reader)
        finally:
            await asyncio.to_thread(services.stop)
            self._timeline.restarts = {
                name: self._timeline.restarts.get(name, 0) + count
                for name, count in services.restarts.items()
            }
            await reader.stop()
            await producer.stop()
        if self._train:
            await self._conclude(link)

    async def _conclude(self, link: connection.Connection) -> None:
        """Replay and report; Ctrl-C ends the program from here on, and the same command comes here again."""
        self._turn(Phase.REPORT)
        self._save()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
        log = self._folder / "logs" / "replay.log"
        try:
            replayed = await asyncio.to_thread(
                outside.ask_service, "scheduler", ["replay", "--json"], link.environment(), log=log
            )
        except ConsoleError as error:
            # The figures do not depend on it: the report says that the replay could not be had.
            failure = {"equal": False, "differences": [str(error)], "violations": []}
            replayed = msgspec.json.encode(failure)
        (self._folder / "replay.json").write_bytes(replayed)
        await write_report(self._config, self._folder, link, self._timeline.wall_s + self._elapsed())
        self._timeline.finished = True

    async def _drive(self, services: Services, producer: Producer, reader: LogReader) -> None:
        self._turn(Phase.BEFORE if self._train else Phase.SERVING)
        settled_by = 0.0
        while True:
            if self._stop.is_set():
                raise Interrupted
            for note in await asyncio.to_thread(services.watch):
                self._screen.say(note)
            gone, services.gone = services.gone, []
            await producer.emit(
                *(Outgoing(topic=HEARTBEATS.name, event=beat, key=beat.worker) for beat in gone)
            )
            for record in self._fence.admitted(await reader.poll(0.25, 2000)):
                observe(self._view, record.event, record.timestamp_ms / 1000)
                if isinstance(record.event, CheckpointPublished) and record.event.final:
                    self._view.final = True
            self._screen.show(self._view, self._phase, services.restarts)
            if not self._train:
                continue
            if self._phase is Phase.BEFORE and "before" in self._view.evaluations:
                self._turn(Phase.TRAINING)
            self._check_stalled()
            if self._phase is Phase.TRAINING:
                if not self._view.final:
                    await self._submit(producer)
                else:
                    cancelled = TaskCancelled(batch=BATCH, reason="the run has its last checkpoint")
                    await producer.emit(
                        Outgoing(
                            topic=TASKS.name, event=cancelled, key=BATCH, id=event_id("TaskCancelled", BATCH)
                        )
                    )
                    self._turn(Phase.AFTER)
            if self._phase is Phase.AFTER and ("after" in self._view.evaluations or self._view.version == 0):
                self._turn(Phase.SETTLING)
                settled_by = time.monotonic() + SETTLE_S
            if self._phase is Phase.SETTLING and (not self._view.states or time.monotonic() > settled_by):
                return

    def _check_stalled(self) -> None:
        """End a run that gets nowhere, whatever its services say of themselves.

        Raises:
            ConsoleError: no new version, or no evaluation, for too long.
        """
        now = time.monotonic()
        if self._view.version != self._seen_version:
            self._seen_version, self._moved_at = self._view.version, now
        since = max(self._moved_at, self._phase_since)
        if now - since <= STALLED_S:
            return
        patience = patience_s(self._view.states.values(), self._catalog.cards)
        patience += 0.0 if self._phase is Phase.TRAINING else self._config.evaluator.deadline_s
        if now - since > patience:
            raise ConsoleError(
                f"nothing new for {patience:.0f} s while {self._phase}: see {self._folder / 'logs'}; "
                "the same command goes on"
            )

    async def _submit(self, producer: Producer) -> None:
        training = self._config.training
        wanted = due(
            max(0, self._view.version),
            steps=training.steps,
            groups_per_step=training.groups_per_step,
            backlog_steps=training.backlog_steps,
        )
        cards = list(self._catalog.cards.values())
        if self._config.scheduler.mix == "variance" or self._config.scheduler.layers:
            backlog = training.backlog_steps * training.groups_per_step
            domains = lacking(cards, self._view.begun, self._submitted, backlog=backlog)
        else:
            domains = islice(self._turns, max(0, wanted - self._submitted.total()))
        batch = [self._next(domain) for domain in islice(domains, EMIT_AT_A_TIME)]
        if batch:
            await producer.emit(*batch)

    def _next(self, domain: str) -> Outgoing:
        """The next training task of a domain; a restarted run sends the same ones again, which changes nothing."""
        waiting = self._drawn.setdefault(domain, [])
        if not waiting:
            levels = self._config.training.difficulties
            seed = chunk_seed(self._config.seed, self._submitted[domain] // self._chunk)
            pools = [
                self._catalog.sample(
                    domain, split="train", seed=seed, count=self._chunk // len(levels), difficulty=level
                )
                for level in levels
            ]
            waiting += [
                TaskSubmitted(task=msgspec.structs.replace(item.task, batch=BATCH))
                for row in zip(*pools, strict=True)
                for item in row
            ]
            waiting.reverse()
        self._submitted[domain] += 1
        submitted = waiting.pop()
        return Outgoing(
            topic=TASKS.name,
            event=submitted,
            key=domain,
            id=event_id("TaskSubmitted", submitted.task.id),
            traceparent=telemetry.submitted(submitted.task.id, domain),
        )

    def _turn(self, phase: Phase) -> None:
        elapsed = self._elapsed()
        self._timeline.phases[self._phase] = self._timeline.phases.get(self._phase, 0.0) + elapsed
        self._timeline.wall_s += elapsed
        self._phase, self._phase_since = phase, time.monotonic()

    def _elapsed(self) -> float:
        return time.monotonic() - self._phase_since

    def _save(self) -> None:
        path = self._folder / "timeline.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(self._timeline))
        temporary.replace(path)
