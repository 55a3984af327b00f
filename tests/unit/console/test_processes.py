from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

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
