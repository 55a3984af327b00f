"""Wiring of the sampler: checkpoints and assignments in, an engine in its thread, trajectories and heartbeats out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from schemas.checkpoints import CheckpointPublished
from schemas.tasks import PolicyRef
from schemas.topics import CHECKPOINTS, assignments
from services.runtime.blobs import Blobs
from services.runtime.consumer import LogReader, WorkConsumer
from services.runtime.errors import Unavailable
from services.runtime.lifecycle import Lifecycle
from services.runtime.models import default_cache, resolve_model
from services.runtime.producer import Producer
from services.runtime.settings import Process
from services.sampler.engines import choice
from services.sampler.engines.driver import Driver
from services.sampler.engines.port import EngineError
from services.sampler.handlers import Desk
from services.sampler.intake import Intake
from services.sampler.pulse import Pulse, Source
from services.sampler.settings import SamplerSettings, resolve
from services.sampler.tokenizer import Tokenizer
from services.sampler.versions import Versions

CATCH_UP_S = 30.0
POLL_S = 0.25
STOP_S = 10.0
WATCH_S = 5.0
LAPSE_S = 0.25
"""Between two looks at the leases of the groups in the engine."""
ENGINE_STALL_S = 300.0
"""One step or load may take this long (the first compiles kernels); beyond it the engine hangs."""


async def run(process: Process, lifecycle: Lifecycle) -> None:
    """Sample until told to stop."""
    settings = resolve(process, lifecycle.drain_s, str(time.time_ns()))
    base = await asyncio.to_thread(resolve_model, process.config.model.path, default_cache())
    tokenizer = await asyncio.to_thread(Tokenizer, base, chat=process.config.model.chat)
    producer = Producer(process.kafka, process.prefix, process.worker)
    reader = LogReader(process.kafka, process.prefix, [CHECKPOINTS.name], start="earliest")
    pool = settings.engine.pool
    consumer = WorkConsumer(
        process.kafka,
        process.prefix,
        [assignments(pool).name],
        f"sampler.{pool}",
        producer,
        window=settings.window,
    )
    intake = Intake(slots=settings.engine.slots, capacity=settings.capacity)
    driver = Driver(choice.builder(settings.engine, base, settings.seed))
    versions = Versions(
        intake,
        driver,
        tolerance=settings.engine.canary_tolerance,
        max_model_len=settings.engine.max_model_len,
    )
    pulse = Pulse(settings, producer, lifecycle.progress)
    await producer.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            blobs = Blobs(process.blobs)
            desk = Desk(settings, intake, driver, versions, tokenizer, producer, blobs, tasks, pulse.now)
            source = Source(desk, intake, driver, versions, lambda: consumer.positions() | reader.positions())
            up = asyncio.Event()
            tasks.create_task(pulse.run(lambda: source if up.is_set() else None, desk.wake))
            await reader.start()
            await _first_version(reader, intake, settings, base)
            await _start_engine(driver, versions, intake, lifecycle)
            watching = tasks.create_task(_watch(driver, lifecycle))
            lapsing = tasks.create_task(watch_leases(desk))
            if not lifecycle.stop.is_set():
                following = tasks.create_task(_follow(reader, intake, desk, settings.run, lifecycle))
                await consumer.start()
                consuming = tasks.create_task(consumer.run(desk.handle, lifecycle.stop))
                up.set()
                lifecycle.progress.ready()
                desk.wake.set()
                await lifecycle.stop.wait()
                await consuming
                await following
                await consumer.stop()  # the others get its partitions while this one finishes what it has
                desk.wake.set()
                await desk.drain(settings.drain_s)
            pulse.end()
            watching.cancel()
            lapsing.cancel()
        if driver.failure is not None:
            raise Unavailable(str(driver.failure))
    finally:
        async with asyncio.timeout(STOP_S):
            await driver.close()
            await consumer.stop()
            await reader.stop()
            await producer.stop()


async def _first_version(reader: LogReader, intake: Intake, settings: SamplerSettings, base: Path) -> None:
    """The newest version published so far, else the base: version 0, whose canary comes with its publication."""
    deadline = time.monotonic() + CATCH_UP_S
    while not await reader.caught_up():
        await _read(reader, intake, settings.run)
        if time.monotonic() > deadline:
            raise Unavailable(f"topic {CHECKPOINTS.name} was not read to its end within {CATCH_UP_S:g} s")
    if intake.newest is None:
        intake.publish(PolicyRef(version=0, uri=str(base), digest=""))


async def _start_engine(driver: Driver, versions: Versions, intake: Intake, lifecycle: Lifecycle) -> None:
    """Build the engine and load the first version; a refusal is fatal only for the base, which nothing can replace."""
    starting = asyncio.ensure_future(driver.start())
    stopping = asyncio.ensure_future(lifecycle.stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if lifecycle.stop.is_set():
        starting.cancel()
        return
    try:
        await starting
    except EngineError as error:
        raise Unavailable(str(error)) from error
    first = intake.switching = intake.newest
    if not await versions.switch() and first is not None and not first.digest:
        raise Unavailable(f"the base model cannot be served: {versions.refused['0']}")


async def _follow(reader: LogReader, intake: Intake, desk: Desk, run: str, lifecycle: Lifecycle) -> None:
    while not lifecycle.stop.is_set():
        await _read(reader, intake, run)
        lifecycle.progress.beat("checkpoints", deadline_s=60.0)
        desk.pump()  # also lets leases that ended while they waited be handed back


async def _read(reader: LogReader, intake: Intake, run: str) -> None:
    for record in await reader.poll(POLL_S):
        if isinstance(record.event, CheckpointPublished) and record.event.run == run:
            intake.publish(record.event.policy)


async def watch_leases(desk: Desk, every_s: float = LAPSE_S) -> None:
    """Stop groups whose leases are over, until cancelled: beside all that waits for the broker, which may be the reason."""
    while True:
        desk.lapse()
        await asyncio.sleep(every_s)


async def _watch(driver: Driver, lifecycle: Lifecycle) -> None:
    """End the process when the engine fails: a new process has a new engine.

    It ends as when it is told to stop, so that the groups that were in the engine are given back with what is known of its
    end, and those that only waited go on elsewhere; but it is not given longer than that.
    """
    while not driver.stopped.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(driver.stopped.wait(), WATCH_S)
        if driver.stalled_s() > ENGINE_STALL_S:
            raise Unavailable(f"the engine has not come back from one step for {driver.stalled_s():.0f} s")
    if driver.failure is not None:
        lifecycle.drain(str(driver.failure))
        await asyncio.sleep(lifecycle.drain_s)  # cancelled when all has been given back
        raise Unavailable(f"{driver.failure}; not all leases were given back within {lifecycle.drain_s:g} s")
