"""A run whose services are killed one after the other ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

VICTIMS = ("sampler-0", "verifier-0", "trainer", "scheduler")


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kill_9_of_each_service_loses_nothing(start_run: Callable[..., Any]) -> None:
    run = start_run()
    run.until("first version", lambda: run.version() >= 1, 120)
    for turn, victim in enumerate(VICTIMS):
        version = run.version()
        pid = run.pids()[victim]
        os.kill(pid, signal.SIGKILL)
        run.until(f"{victim} back", lambda pid=pid, victim=victim: run.pids().get(victim, pid) != pid, 60)
        run.until(f"progress after {victim}", lambda version=version: run.version() > version + 1, 120)
        assert run.version() <= 16 - len(VICTIMS) + turn + 1, (
            "the run was over before the last kill: lengthen it"
        )
    report = run.report(240)
    assert report["lost"] == 0
    assert report["groups_trained_twice"] == 0
    assert report["steps"] == 16
    assert {name: count for name, count in report["restarts"].items() if count} == dict.fromkeys(VICTIMS, 1)
    assert report["replay"]["equal"] is True
    assert report["replay"]["violations"] == []
    assert report["heldout"]["after"] > report["heldout"]["before"] + 0.05
