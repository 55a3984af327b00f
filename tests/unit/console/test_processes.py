from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from services.console.processes import Services

if TYPE_CHECKING:
    from pathlib import Path


def test_a_worker_that_was_killed_is_reported_as_gone_and_started_again(tmp_path: Path) -> None:
    services = Services({"sampler-0": "sampler"}, dict(os.environ), tmp_path)
    services.start()
    try:
        os.kill(services.pids()["sampler-0"], signal.SIGKILL)
        notes, ends = list[str](), time.monotonic() + 20.0
        while not services.gone:
            assert time.monotonic() < ends
            notes = services.watch()
        [told] = services.gone
        assert (told.worker, told.service, told.ended) == ("sampler-0", "sampler", "signal")
        assert (told.leases, told.slots) == ((), 0)
        assert "is started again" in notes[0]
    finally:
        services.stop()


def test_a_worker_whose_last_words_are_of_memory_is_reported_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = tmp_path / "services" / "sampler"
    service.mkdir(parents=True)
    (service / "__init__.py").touch()
    (service / "__main__.py").write_text("raise SystemExit('the engine failed: OutOfMemoryError: CUDA')")
    services = Services(
        {"sampler-0": "sampler"}, {**os.environ, "PYTHONPATH": str(tmp_path)}, tmp_path / "logs"
    )
    monkeypatch.chdir(tmp_path)  # `-m` looks here first
    try:
        services.start()
        pid, ends = services.pids()["sampler-0"], time.monotonic() + 20.0
        while not services.gone:
            assert time.monotonic() < ends
            services.watch()
        [told] = services.gone
        assert (told.ended, told.pid) == ("memory", pid)
    finally:
        services.stop()
