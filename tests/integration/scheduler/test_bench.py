"""`temper bench pipeline`, one small round with all peers: the document as agreed, nothing left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PROJECT = Path(__file__).resolve().parents[3]
PEERS = {"celery", "dramatiq", "arq"}


def bench(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.console", "bench", *words]
    return subprocess.run(
        command,
        cwd=PROJECT,
        env=dict(os.environ) | more,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.mark.timeout(180)
def test_a_round_with_all_peers(tmp_path: Path) -> None:
    done = bench("pipeline", "--json", "--rounds", "1", "--tasks", "300", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    document: dict[str, Any] = json.loads(done.stdout)
    assert set(document) == {"bench", "machine", "figures"}
    assert document["bench"] == "pipeline"
    assert document["machine"]["tasks"] == 300
    figures = document["figures"]
    for figure in figures.values():
        assert set(figure) == {"value", "unit", "min", "max", "runs", "ratio"}
        assert figure["value"] >= 0
    for name in ("pipeline.per_s", "pipeline.submit_per_s", "idle.p50_ms", "idle.p99_ms"):
        assert set(figures[name]["ratio"]) == PEERS
        assert figures[name]["value"] > 0
    ratio = figures["pipeline.per_s"]["value"] / figures["pipeline.celery.per_s"]["value"]
    assert figures["pipeline.per_s"]["ratio"]["celery"] == pytest.approx(ratio, rel=0.01)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_is_refused_before_anything_starts() -> None:
    done = bench("pipeline", "--tasks", "0")
    assert done.returncode == 2
    assert "--tasks" in done.stderr
