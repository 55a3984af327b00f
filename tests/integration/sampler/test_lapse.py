"""A sampler that is not heard of any more stops what it has no right to: the real engine is free when the lease is over."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.ids import group_id, lease_id
from schemas.run import Sampler
from schemas.tasks import PolicyRef, Sampling, Task
from schemas.trajectories import TrajectoryAbandoned
from services.runtime import topics
from services.runtime.blobs import Blobs
from services.runtime.producer import Producer
from services.runtime.reader import LogReader
from services.runtime.wire import Record
from services.sampler.app import watch_leases
from services.sampler.engines import choice
from services.sampler.engines.driver import Driver
from services.sampler.handlers import Desk
from services.sampler.intake import Intake
from services.sampler.settings import SamplerSettings
from services.sampler.tokenizer import Tokenizer
from services.sampler.versions import Versions

Checkpoint = Any  # the dataclass in conftest.py, which no module can import

pytestmark = [pytest.mark.integration]
SIZE = 96
ENDLESS = 500
"""Tokens that take the engine many times as long as the leases here."""


def record(event: Event, offset: int) -> Record:
    envelope = Envelope(id=str(offset), type="x", key="k", occurred_at=time.time(), producer="t", data=b"")  # type: ignore[arg-type]
    return Record(
        topic="assignments.standard",
        partition=0,
        offset=offset,
        timestamp_ms=0,
        key="k",
        envelope=envelope,
        event=event,
    )


def assigned(name: str, lease_s: float) -> AttemptAssigned:
    return AttemptAssigned(
        lease_id=lease_id(name, 1),
        lease_expires_at=time.time() + lease_s,
        lease_s=lease_s,
        task=Task(id=name, domain="d", prompt="2 + 3 ="),
        attempt=1,
        group_id=group_id(name, 1),
        group_size=SIZE,
        sampling=Sampling(max_tokens=ENDLESS),
    )


async def until(condition: Any, what: str, within_s: float = 20.0) -> None:
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, f"did not happen: {what}"
        await asyncio.sleep(0.01)


async def scenario(kafka: str, prefix: str, folder: Path, blobs: Path) -> None:
    await topics.create(kafka, prefix, pools=("standard",))
    engine = Sampler(engine="torch", slots=2, max_model_len=512, max_num_seqs=256, threads=1)
    settings = SamplerSettings(
        worker="w", run="run", engine=engine, capacity=8, window=8, seed=1, drain_s=5.0
    )
    producer = Producer(kafka, prefix, "w")
    await producer.start()
    intake = Intake(slots=2, capacity=8)
    driver = Driver(choice.builder(engine, folder, 1))
    versions = Versions(intake, driver, tolerance=0.02, max_model_len=512)

    async def announce() -> None: ...

    try:
        await driver.start()
        intake.publish(PolicyRef(version=0, uri=str(folder), digest=""))
        intake.switching = intake.newest
        assert await versions.switch()
        async with asyncio.TaskGroup() as tasks:
            tokenizer = Tokenizer(folder, chat=False)
            desk = Desk(
                settings, intake, driver, versions, tokenizer, producer, Blobs(str(blobs)), tasks, announce
            )
            lapsing = tasks.create_task(watch_leases(desk, 0.02))
            # Nobody renews this lease: no heartbeat gets through.
            desk.handle(record(assigned("t", 0.3), 0), lambda: None)
            began = time.monotonic()
            await until(lambda: driver.running() > 0, "the group is in the engine")
            await until(lambda: driver.running() == 0, "the engine is free")
            assert time.monotonic() - began < 3.0
            await until(lambda: desk.released, "the lease is given back")
            assert [given.reason for given in desk.released] == ["abandoned"]
            assert intake.held() == ()
            # A lease that is taken back ends as fast; one that is renewed goes on beside it.
            desk.released.clear()
            desk.handle(record(assigned("kept", 0.3), 1), lambda: None)
            desk.handle(record(assigned("u", 60.0), 2), lambda: None)
            await until(lambda: driver.running() > SIZE, "both are in the engine")
            desk.handle(
                record(
                    AttemptRevoked(lease_id=lease_id("u", 1), task_id="u", attempt=1, reason="expired"), 3
                ),
                lambda: None,
            )
            ends = time.monotonic() + 0.6
            while time.monotonic() < ends:
                intake.renewed((lease_id("kept", 1),), time.time())
                await asyncio.sleep(0.05)
            assert [given.lease_id for given in desk.released] == [lease_id("u", 1)]
            assert lease_id("kept", 1) in intake.held()
            lapsing.cancel()
            await desk.drain(0.1)
        reasons = await said(kafka, prefix)
        assert reasons == {"t": {"expired"}, "u": {"revoked"}, "kept": {"drain"}}
    finally:
        await driver.close()
        await producer.stop()


async def said(kafka: str, prefix: str) -> dict[str, set[str]]:
    reader = LogReader(kafka, prefix, ["trajectories"])
    await reader.start()
    found: dict[str, set[str]] = {}
    try:
        while not await reader.caught_up():
            for item in await reader.poll(0.25):
                if isinstance(item.event, TrajectoryAbandoned):
                    found.setdefault(item.event.task_id, set()).add(item.event.reason)
    finally:
        await reader.stop()
    return found


def test_a_group_whose_lease_is_over_leaves_the_engine(
    kafka: str, prefix: str, checkpoints: list[Checkpoint], tmp_path: Path
) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120.0):
            await scenario(kafka, prefix, checkpoints[0].folder, tmp_path)

    asyncio.run(bounded())
