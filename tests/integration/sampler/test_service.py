"""The sampler process on the real broker, from first assignment to drain. One process for all of it: it starts slowly."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from schemas.assignments import AttemptAssigned, AttemptRevoked
from schemas.base import Event
from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import group_id, lease_id, trajectory_id
from schemas.run import Model, RunConfig, Sampler
from schemas.tasks import PolicyRef, Sampling, Task
from schemas.trajectories import TrajectoryAbandoned, TrajectoryCompleted
from services.runtime import settings as runtime_settings
from services.runtime import topics
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader

Checkpoint = Any  # the dataclass in conftest.py, which no module can import

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PROJECT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0
SIZE, SLOTS = 4, 2


def assignment(
    name: str,
    *,
    prompt: str = "2 + 3 =",
    pin: PolicyRef | None = None,
    tokens: int = 20,
    lease_s: float = 60.0,
) -> AttemptAssigned:
    return AttemptAssigned(
        lease_id=lease_id(name, 1),
        lease_expires_at=time.time() + lease_s,
        task=Task(id=name, domain="d", prompt=prompt, policy=pin),
        attempt=1,
        group_id=group_id(name, 1),
        group_size=SIZE,
        sampling=Sampling(max_tokens=tokens),
    )


class Bench:
    """Sends to a sampler process and keeps what it says."""

    def __init__(self, kafka: str, prefix: str, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.producer = Producer(kafka, prefix, "tester")
        self.reader = LogReader(kafka, prefix, ["trajectories", "heartbeats"])
        self.completed: list[TrajectoryCompleted] = []
        self.abandoned: list[TrajectoryAbandoned] = []
        self.beats: list[WorkerHeartbeat] = []
        self.ids: list[str] = []

    async def send(self, *events: AttemptAssigned | AttemptRevoked | CheckpointPublished) -> None:
        out = []
        for event in events:
            match event:
                case CheckpointPublished():
                    out.append(Outgoing(topic="checkpoints", event=event, key=event.run))
                case _:
                    key = group_id(event.task_id if isinstance(event, AttemptRevoked) else event.task.id, 1)
                    out.append(Outgoing(topic="assignments.standard", event=event, key=key))
        await self.producer.emit(*out)

    async def until(self, condition: Callable[[], bool], what: str, *, ended: bool = False) -> None:
        ends = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < ends, f"did not happen: {what}; last heartbeat {self.beats[-1:]}"
            if not ended and self.process.poll() is not None:
                pytest.fail(
                    f"the sampler ended with {self.process.returncode}: {self.process.communicate()[1]}"
                )
            for record in await self.reader.poll(0.1):
                self._keep(record.envelope.id, record.event)

    def _keep(self, identity: str, event: Event) -> None:
        match event:
            case TrajectoryCompleted():
                self.completed.append(event)
                self.ids.append(identity)
            case TrajectoryAbandoned():
                self.abandoned.append(event)
                self.ids.append(identity)
            case WorkerHeartbeat():
                self.beats.append(event)

    def of(self, name: str) -> list[TrajectoryCompleted]:
        return [event for event in self.completed if event.task.id == name]

    async def sampled(self, name: str) -> list[TrajectoryCompleted]:
        await self.until(lambda: len(self.of(name)) >= SIZE, f"{name} sampled")
        return self.of(name)

    def version(self) -> int:
        return self.beats[-1].policy_version if self.beats else -1


def versions(samples: list[TrajectoryCompleted]) -> set[int]:
    return {span.version for sample in samples for span in sample.spans}


async def scenario(bench: Bench, checkpoints: list[Checkpoint], corrupted: Checkpoint) -> None:
    def published(checkpoint: Checkpoint, run: str = "job") -> CheckpointPublished:
        return CheckpointPublished(run=run, policy=checkpoint.policy(), step=checkpoint.version)

    # The base serves before it has been published; every sample is complete and true.
    await bench.send(assignment("first"))
    first = await bench.sampled("first")
    assert {sample.trajectory_id for sample in first} == {trajectory_id("first", 1, i) for i in range(SIZE)}
    assert versions(first) == {0}
    for sample in first:
        reference = checkpoints[0].logprobs(sample.prompt_ids, sample.token_ids)
        assert sample.logprobs == pytest.approx(reference, abs=1e-4)
        assert bytes(sample.prompt_ids) != b""
        assert len(sample.prompt_ids) == len("2 + 3 =")

    # A duplicate, an assignment whose lease is over and a revoked one lead to nothing.
    await bench.send(
        assignment("first"),
        assignment("late", lease_s=-1.0),
        AttemptRevoked(lease_id=lease_id("gone", 1), task_id="gone", attempt=1, reason="cancelled"),
    )
    await bench.send(assignment("gone"), assignment("second"), assignment("too long", prompt="x" * 500))
    await bench.sampled("second")
    await bench.until(lambda: len(bench.abandoned) >= SIZE, "the long prompt abandoned")
    assert {(event.task_id, event.reason) for event in bench.abandoned} == {("too long", "too_long")}
    released = lease_id("second", 1)
    await bench.until(
        lambda: any(item.lease_id == released for beat in bench.beats for item in beat.released), "release"
    )

    # A new version is loaded, another run's is not, a corrupted one is refused and never serves.
    await bench.send(
        published(checkpoints[0]), published(checkpoints[2], run="other"), published(checkpoints[1])
    )
    await bench.until(lambda: bench.version() == 1, "version 1")
    await bench.send(published(corrupted))
    await bench.until(lambda: "3" in bench.beats[-1].refused, "the refusal")
    assert "canary" in bench.beats[-1].refused["3"]
    assert bench.version() == 1
    await bench.send(assignment("third"))
    third = await bench.sampled("third")
    assert versions(third) == {1}
    assert third[0].logprobs == pytest.approx(
        checkpoints[1].logprobs(third[0].prompt_ids, third[0].token_ids), abs=1e-4
    )

    # A pinned task gets exactly its version; afterwards the newest good one is back.
    await bench.send(
        assignment("pinned", pin=checkpoints[0].policy()), assignment("refused", pin=corrupted.policy())
    )
    assert versions(await bench.sampled("pinned")) == {0}
    await bench.until(lambda: any(event.task_id == "refused" for event in bench.abandoned), "the refused pin")
    await bench.until(lambda: bench.version() == 1, "the return to version 1")
    assert bench.of("late") == bench.of("gone") == []
    assert len(bench.of("first")) == SIZE

    # SIGTERM under more work than it may hold: what runs finishes, what waits is handed back, the rest was never taken.
    names = [f"drain {number}" for number in range(40)]
    await bench.send(*(assignment(name, tokens=140) for name in names))
    await bench.until(lambda: len(bench.beats[-1].leases) > SLOTS, "leases held")
    bench.process.send_signal(signal.SIGTERM)
    await bench.until(lambda: bench.beats[-1].draining and not bench.beats[-1].leases, "drained", ended=True)
    _, errors = await asyncio.to_thread(bench.process.communicate, timeout=DEADLINE_S)
    assert bench.process.returncode == 0, errors
    ends = Counter(event.task.id for event in bench.completed) + Counter(e.task_id for e in bench.abandoned)
    assert {ends[name] for name in names} == {0, SIZE}
    handed_back = {e.lease_id for e in bench.abandoned if e.reason == "drain"}
    assert handed_back
    assert handed_back <= {lease_id(name, 1) for name in names}
    assert max(len(beat.leases) for beat in bench.beats) <= 4 * SLOTS
    assert len(bench.ids) == len(set(bench.ids))
    assert {(beat.slots, beat.tokens) for beat in bench.beats} <= {(0, 0), (SLOTS, 8 * 160)}
    assert any(beat.tokens for beat in bench.beats), "slots and tokens are told together"
    returned = Counter(item.lease_id for beat in bench.beats for item in beat.released)
    assert returned == Counter({lease_id(name, 1) for name, count in ends.items() if count})


def environment(tmp_path: Path, kafka: str, prefix: str, model: Path) -> dict[str, str]:
    run = RunConfig(
        name="job",
        model=Model(path=str(model)),
        sampler=Sampler(
            slots=SLOTS, max_model_len=160, max_num_seqs=8, kv_cache_mib=64, threads=1, heartbeat_s=0.5
        ),
    )
    (tmp_path / "run.json").write_bytes(runtime_settings.to_json(run))
    return {
        **os.environ,
        "TEMPER_KAFKA": kafka,
        "TEMPER_PREFIX": prefix,
        "TEMPER_RUN_DIR": str(tmp_path / "run"),
        "TEMPER_CONFIG": str(tmp_path / "run.json"),
        "TEMPER_LOG": "text",
    }


def play(
    kafka: str, prefix: str, environment: dict[str, str], scene: Callable[[Bench], Coroutine[Any, Any, None]]
) -> None:
    async def main(process: subprocess.Popen[str]) -> None:
        bench = Bench(kafka, prefix, process)
        await bench.producer.start()
        await bench.reader.start()
        try:
            await scene(bench)
        finally:
            await bench.reader.stop()
            await bench.producer.stop()

    asyncio.run(topics.create(kafka, prefix))
    process = subprocess.Popen(
        [sys.executable, "-m", "services.sampler"],
        cwd=PROJECT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        asyncio.run(main(process))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.timeout(180)
def test_from_the_first_assignment_to_the_drain(
    tmp_path: Path, kafka: str, prefix: str, checkpoints: list[Checkpoint], corrupted: Checkpoint
) -> None:
    told = environment(tmp_path, kafka, prefix, checkpoints[0].folder)
    play(kafka, prefix, told, lambda bench: scenario(bench, checkpoints, corrupted))


def test_told_to_stop_while_the_engine_starts_it_ends(
    tmp_path: Path, kafka: str, prefix: str, checkpoints: list[Checkpoint]
) -> None:
    async def scene(bench: Bench) -> None:
        await bench.until(lambda: bool(bench.beats), "the first heartbeat")
        assert bench.beats[0].slots == 0, "no credits before the engine is up"
        bench.process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.to_thread(bench.process.communicate, timeout=25)
        assert bench.process.returncode == 0, errors
        assert "Traceback" not in errors

    play(kafka, prefix, environment(tmp_path, kafka, prefix, checkpoints[0].folder), scene)


def test_a_model_folder_without_weights_ends_with_one_line(tmp_path: Path, kafka: str, prefix: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")

    async def scene(bench: Bench) -> None:
        _, errors = await asyncio.to_thread(bench.process.communicate, timeout=DEADLINE_S)
        assert bench.process.returncode == 2, errors
        (line,) = [line for line in errors.splitlines() if "model.safetensors" in line]
        assert "the folder has no weights" in line
        assert "Traceback" not in errors

    play(kafka, prefix, environment(tmp_path, kafka, prefix, tmp_path / "model"), scene)
