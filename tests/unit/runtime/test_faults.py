"""Faults on purpose: none unless asked for, each once, and every named point exists in the code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.runtime.faults import POINTS, parse

PROJECT = Path(__file__).resolve().parents[3]
PASS = "from services.runtime import faults\nfor _ in range(5): faults.at('scheduler:after-journal')\nprint('alive')"


def passed(**environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPER_")}
    return subprocess.run(
        [sys.executable, "-c", PASS],
        env=kept | {"PYTHONPATH": str(PROJECT)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_point_is_in_the_code_and_the_other_way_round() -> None:
    called = {
        point
        for path in (PROJECT / "services").rglob("*.py")
        for point in re.findall(r'faults\.at\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert called == set(POINTS)


def test_nothing_happens_unless_asked_for() -> None:
    assert passed().stdout == "alive\n"
    assert passed(TEMPER_FAULT="scheduler:after-journal:6").stdout == "alive\n"
    assert passed(TEMPER_FAULT="scheduler:before-journal:1").stdout == "alive\n"


def test_the_fault_comes_at_its_pass_and_once(tmp_path: Path) -> None:
    asked = {"TEMPER_FAULT": "scheduler:after-journal:3", "TEMPER_FAULT_DIR": str(tmp_path)}
    assert passed(**asked).returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["scheduler_after-journal_3"]
    assert passed(**asked).stdout == "alive\n"


def test_what_is_no_fault_is_refused() -> None:
    for text in ("scheduler:nowhere:1", "scheduler:after-journal", "scheduler:after-journal:0", "x"):
        with pytest.raises(ValueError, match="TEMPER_FAULT"):
            parse(text)
    assert [fault.how for fault in parse("trainer:before-rename:2:1.5")["trainer:before-rename"]] == ["1.5"]
