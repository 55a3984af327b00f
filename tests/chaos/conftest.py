"""Whole runs as a user starts them, in a folder of their own; and one short run of the suite, kept to be audited."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.runtime.stack import Process, Stack
from tests.chaos.recorded import Recorded, play

PROJECT = Path(__file__).resolve().parents[2]


class LiveRun:
    """A `temper run` in progress."""

    def __init__(self, folder: Path, process: Process) -> None:
        self.folder = folder
        self.process = process

    def version(self) -> int:
        """Newest complete checkpoint, -1 before the first."""
        found = [
            int(path.name[1:]) for path in (self.folder / "checkpoints").glob("v*") if path.name[1:].isdigit()
        ]
        return max(found, default=-1)

    def pids(self) -> dict[str, int]:
        """Process ids of the services, as the run last wrote them."""
        path = self.folder / "logs" / "pids.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def until(self, what: str, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait for a condition; fail with the run's last lines at the deadline, or if it ends before."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            ended = self.process.poll()
            if ended is not None or time.monotonic() > deadline:
                pytest.fail(f"{what}: not reached (run status {ended}): {self.process.output()[-3000:]}")
            time.sleep(0.05)

    def report(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the end and read the report."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end within {timeout_s} s: {self.process.output()[-3000:]}")
        assert status == 0, self.process.output()[-3000:]
        return dict(json.loads((self.folder / "report.json").read_text()))


@pytest.fixture(scope="session")
def recorded(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A short real run, kept to be audited."""
    return asyncio.run(play(tmp_path_factory.mktemp("audited"), stack))


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[Callable[..., LiveRun]]:
    """Start `temper run @presets/short.toml` with overrides; whatever still runs afterwards is stopped."""
    started: list[Process] = []
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TEMPER_")}

    def start(*overrides: str, **extra: str) -> LiveRun:
        process = Process.start(
            "run",
            [
                *(
                    sys.executable,
                    "-m",
                    "services.console",
                    "run",
                    f"@{PROJECT / 'presets' / 'short.toml'}",
                    "--plain",
                ),
                *("--domains.paths", json.dumps([str(PROJECT / "domains")])),
                *overrides,
            ],
            log=tmp_path / "run.log",
            env=environment | {"PYTHONPATH": str(PROJECT)} | extra,
            cwd=tmp_path,
            grace_s=60.0,
        )
        started.append(process)
        return LiveRun(tmp_path / "runs" / "short", process)

    yield start
    for process in started:
        process.stop()
