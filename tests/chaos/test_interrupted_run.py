"""Ctrl-C loses nothing: the same command goes on, and the finished run can be replayed and reported again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_an_interrupted_run_goes_on_and_can_be_replayed(
    start_run: Callable[..., Any], tmp_path: Path
) -> None:
    overrides = ("--training.steps", "6", "--evaluator.tasks", "2", "--evaluator.samples", "2")
    first = start_run(*overrides)
    first.until("second version", lambda: first.version() >= 2, 180)
    first.process.signal(signal.SIGINT)
    assert first.process.wait(90) == 130, first.process.output()[-3000:]
    assert "goes on from here" in first.process.output()
    reached = first.version()

    second = start_run(*overrides)
    report = second.report(240)
    assert report["steps"] == 6
    assert 2 <= reached <= 6
    assert report["lost"] == 0
    assert report["groups_trained_twice"] == 0
    assert report["replay"]["equal"] is True

    environment = {key: value for key, value in os.environ.items() if not key.startswith("TEMPER_")}
    environment["PYTHONPATH"] = str(PROJECT)
    command = [sys.executable, "-m", "services.console"]
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "env": environment,
        "timeout": 120,
        "capture_output": True,
    }
    replayed = subprocess.run([*command, "replay", "short", "--json"], check=False, **options)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["equal"] is True
    page = second.folder / "report.html"
    page.unlink()
    again = subprocess.run([*command, "report", "short"], check=False, **options)
    assert again.returncode == 0, again.stderr
    assert page.stat().st_size > 20_000
