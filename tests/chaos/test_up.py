"""`temper up` in one terminal, the other commands in another."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from services.runtime.stack import Process

PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("TEMPER_")} | {
    "PYTHONPATH": str(PROJECT)
}
Temper = Callable[..., subprocess.CompletedProcess[str]]
TASK = {
    "id": "mine-1",
    "domain": "code.lists",
    "prompt": "py x first 2>",
    "spec": {
        "entry": "f",
        "kind": "expression",
        "params": ["x"],
        "cases": [{"args": [[3, 1, 2]], "want": [3, 1]}],
    },
}


@pytest.fixture
def temper(tmp_path: Path) -> Temper:
    (tmp_path / "domains").symlink_to(PROJECT / "domains")

    def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "services.console", *words],
            cwd=tmp_path,
            env=ENVIRONMENT,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def up(tmp_path: Path, temper: Temper) -> Iterator[Process]:
    command = [
        sys.executable,
        "-m",
        "services.console",
        "up",
        f"@{PROJECT / 'presets' / 'short.toml'}",
        "--plain",
    ]
    with Process.start(
        "up", command, log=tmp_path / "up.log", env=ENVIRONMENT, cwd=tmp_path, grace_s=60.0
    ) as process:
        deadline = time.monotonic() + 90
        while not list(tmp_path.glob("runs/*/connection.json")):
            assert process.poll() is None, process.output()
            assert time.monotonic() < deadline, process.output()
            time.sleep(0.1)
        yield process


async def send_garbage(kafka: str) -> None:
    async with asyncio.timeout(30):
        producer = AIOKafkaProducer(bootstrap_servers=kafka)
        await producer.start()
        try:
            await producer.send_and_wait("tasks", b"\xff\x00 no event")
        finally:
            await producer.stop()


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_task_of_ones_own_from_submission_to_its_end(up: Process, temper: Temper, tmp_path: Path) -> None:
    submitted = temper("submit", "-", given=json.dumps(TASK) + "\n")
    assert (submitted.returncode, submitted.stdout.strip()) == (0, "mine-1"), submitted.stderr
    strange = temper("submit", "-", given=json.dumps(TASK | {"id": "mine-2", "domain": "no.such"}) + "\n")
    assert strange.returncode == 0, strange.stderr
    refused = temper(
        "submit", "-", given='{"id": "x", "domain": "code.lists", "prompt": "p", "difficulty": 7}\n'
    )
    assert refused.returncode == 2
    assert "difficulty" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1

    link = json.loads(next(tmp_path.glob("runs/*/connection.json")).read_bytes())
    asyncio.run(send_garbage(link["kafka"]))

    deadline = time.monotonic() + 120
    told: dict[str, Any] = {}
    while told.get("state") not in ("succeeded", "failed", "degraded"):
        assert up.poll() is None, up.output()
        assert time.monotonic() < deadline, told
        said = temper("explain", "mine-1", "--json")
        told = json.loads(said.stdout) if said.returncode == 0 else {}
    rejected = json.loads(temper("explain", "mine-2", "--json").stdout)
    assert rejected["state"] == "rejected"
    assert "no.such" in rejected["reason"]

    assert temper("ps").returncode == 0
    counts = dict(line.split("\t") for line in temper("dlq", "ls").stdout.splitlines())
    assert counts["tasks"] == "1"
    shown = temper("dlq", "show", "tasks").stdout
    assert r"\xff\x00 no event" in shown
    assert temper("dlq", "replay", "tasks").stdout.startswith("1 records")

    up.signal(signal.SIGINT)
    assert up.wait(90) == 0, up.output()


def test_commands_that_need_a_stack_say_how_to_get_one(temper: Temper) -> None:
    for words in (("ps",), ("explain", "x"), ("dlq", "ls"), ("submit", "--domain", "code.lists")):
        said = temper(*words)
        assert said.returncode == 2
        assert "temper up" in said.stderr
        assert len(said.stderr.strip().splitlines()) == 1
