from __future__ import annotations

import pytest

from services.scheduler.bench import core
from services.scheduler.invariants import invariant


def test_a_backlog_is_given_out_and_done_as_the_figures_say() -> None:
    backlog = core.Backlog(4096, 30)
    assert backlog.rate() > 0.0
    assert len(backlog.singles()) == 1024
    assert backlog.cycles() > 0.0
    meta = backlog.state.meta
    assert meta.decisions == 1024 + 1024 + 1024
    assert meta.ended == {"succeeded": 1024}, "what is timed as a cycle ends its tasks"
    assert invariant(backlog.state) == []


def test_a_backlog_that_is_used_up_is_no_figure() -> None:
    backlog = core.Backlog(1024, 3)
    for _ in range(4):
        backlog.rate()
    with pytest.raises(RuntimeError, match="used up"):
        backlog.rate()


def test_a_task_takes_less_than_a_kilobyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "TRACED", 5000)
    assert core._traced(30) < 1024.0
