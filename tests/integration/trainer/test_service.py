"""The trainer process on the real broker, killed in the middle of a run."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import group_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.run import Domains, Model, RunConfig, Trainer, Training
from schemas.states import State, TaskState
from schemas.tasks import Task
from schemas.trajectories import Span, TrajectoryCompleted, content_digest
from schemas.verdicts import Part, scored
from services.runtime import settings as runtime_settings
from services.runtime import topics
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.trainer.checkpoint import Store

pytestmark = pytest.mark.integration
VOCABULARY, SIZE, PER_STEP, STEPS = 40, 4, 3, 3
PROJECT = Path(__file__).resolve().parents[3]
DEADLINE_S = 90.0


def group(number: int, repeat: int = 1) -> list[Outgoing]:
    rng = random.Random(number)
    task = Task(id=f"t{number}", domain="d", prompt="p")
    result = []
    for index in range(SIZE):
        tokens = [rng.randrange(VOCABULARY) for _ in range(3)]
        common: dict[str, Any] = {
            "trajectory_id": trajectory_id(task.id, 1, index),
            "attempt": 1,
            "group_id": group_id(task.id, 1),
            "group_size": SIZE,
            "index": index,
            "lease_id": "l",
        }
        sample = TrajectoryCompleted(
            task=task,
            prompt_ids=[1, 2, 3],
            token_ids=tokens,
            logprobs=[-3.5] * 3,
            spans=(Span(version=0, start=0, end=3),),
            finish="stop",
            text="",
            **common,
        )
        reward = TrajectoryVerified(
            task_id=task.id,
            domain="d",
            purpose="train",
            content=content_digest(tokens, ""),
            verdict=scored([Part(name="x", weight=1.0, score=index / SIZE)]),
            **common,
        )
        result += [
            Outgoing(topic=topic, event=event, key=common["group_id"])
            for topic, event in (("trajectories", sample), ("rewards", reward))
            for _ in range(repeat)
        ]
    return result


def said(number: int, state: State) -> Outgoing:
    event = TaskState(task_id=f"t{number}", domain="d", purpose="train", state=state, attempt=1)
    return Outgoing(topic="task-states", event=event, key=event.task_id)


@pytest.fixture
def environment(tmp_path: Path, kafka: str, prefix: str) -> dict[str, str]:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "d.toml").write_text(
        'name = "d"\nlayer = "tool"\nsummary = "s"\ngenerator = "a.b:c"\n[verifier]\nfamily = "format"\n'
    )
    run = RunConfig(
        name="job",
        model=Model(path=str(tmp_path / "model")),
        domains=Domains(paths=(str(tmp_path / "cards"),)),
        training=Training(steps=STEPS, groups_per_step=PER_STEP),
        trainer=Trainer(lr=1e-3, threads=1, device="cpu"),
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


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "services.trainer"],
        cwd=PROJECT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )


class Watch:
    """Checkpoints as they are published."""

    def __init__(self, reader: LogReader) -> None:
        self.reader = reader
        self.events: list[tuple[str, CheckpointPublished]] = []
        self.beats: list[WorkerHeartbeat] = []

    async def until(self, version: int, process: subprocess.Popen[str]) -> None:
        ends = time.monotonic() + DEADLINE_S
        while not any(event.policy.version >= version for _, event in self.events):
            assert time.monotonic() < ends, f"version {version} did not come"
            if process.poll() is not None:
                pytest.fail(f"the trainer ended with {process.returncode}: {process.communicate()[1]}")
            for record in await self.reader.poll(0.2):
                if isinstance(record.event, CheckpointPublished):
                    self.events.append((record.envelope.id, record.event))
                elif isinstance(record.event, WorkerHeartbeat):
                    self.beats.append(record.event)


async def scenario(kafka: str, prefix: str, environment: dict[str, str], run_dir: Path) -> None:
    await topics.create(kafka, prefix)
    producer = Producer(kafka, prefix, "tester")
    reader = LogReader(kafka, prefix, ["checkpoints", "heartbeats"])
    await producer.start()
    await reader.start()
    watch, processes = Watch(reader), []
    try:
        # Two groups more than a step needs, some records twice, and two groups that are never complete.
        await producer.emit(
            *[item for n in range(PER_STEP + 2) for item in group(n, repeat=2 - n % 2)],
            *group(90)[:-1],
            *group(91)[:-1],
            *(said(n, "running") for n in (90, 91)),
        )
        processes.append(start(environment))
        await watch.until(1, processes[0])
        processes[0].send_signal(signal.SIGKILL)
        processes[0].communicate(timeout=DEADLINE_S)
        before = Store(run_dir / "checkpoints", 3).newest()
        assert before is not None

        processes.append(start(environment))
        await producer.emit(said(91, "backoff"), said(90, "verifying"))
        await producer.emit(*[item for n in range(PER_STEP + 2, STEPS * PER_STEP + 1) for item in group(n)])
        await watch.until(STEPS, processes[1])
        _, errors = await asyncio.to_thread(processes[1].communicate, timeout=DEADLINE_S)
        assert processes[1].returncode == 0, errors
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        await reader.stop()
        await producer.stop()

    published = dict(watch.events)
    assert [event.policy.version for event in published.values()] == [0, 1, 2, 3]
    assert len(watch.events) > len(published), "the restart says again what it found"
    assert [event.final for event in published.values()] == [False, False, False, True]
    last = list(published.values())[-1]
    assert last.metrics["layer/tool"] == pytest.approx(0.375)
    assert last.metrics["duplicates"] > 0
    final = Store(run_dir / "checkpoints", 3).newest()
    assert final is not None
    assert final.record.digest == last.policy.digest
    finished = final.record.assembly.finished
    counts = final.record.assembly.counts
    assert counts.consumed == len(finished) - 1 == STEPS * PER_STEP, "no group twice, none lost"
    assert group_id("t91", 1) in finished, "its attempt ended without its last verdict"
    assert (counts.ended, counts.expired) == (1, 0)
    assert final.record.assembly.under_way == {"t90": 1}
    assert set(before.record.assembly.finished) < set(finished)
    assert group_id("t90", 1) not in finished
    assert any(beat.service == "trainer" and beat.offsets for beat in watch.beats)


def test_killed_in_the_middle_it_goes_on(
    kafka: str, prefix: str, environment: dict[str, str], tmp_path: Path
) -> None:
    asyncio.run(scenario(kafka, prefix, environment, tmp_path / "run"))


def test_a_model_folder_without_weights_ends_with_one_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "model" / "model.safetensors").unlink()
    process = start(environment)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert "no weights" in errors
    assert "Traceback" not in errors
