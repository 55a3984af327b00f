from __future__ import annotations

import pytest

from services.scheduler.bench import core
from services.scheduler.invariants import invariant


@pytest.mark.parametrize("variant", core.VARIANTS)
def test_a_backlog_is_given_out_and_done_as_the_figures_say(variant: str) -> None:
    backlog = core.Backlog(4096, 30, variant)
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


@pytest.mark.parametrize("variant", core.VARIANTS)
def test_a_task_takes_less_than_a_kilobyte(monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    monkeypatch.setattr(core, "TRACED", 5000)
    assert core._traced(30, variant) < 1024.0


def test_the_variants_are_what_they_are_called() -> None:
    plain, cohorts, mixed = (core.Backlog(600, 30, variant) for variant in core.VARIANTS)
    assert plain.policies.cohorts == {}
    assert sum(map(len, cohorts.policies.cohorts.values())) == 30
    assert not all(policy.nominal for policy in cohorts.policies.domains.values()), "some only borrow"
    given = [entry.priority for entry in mixed.state.live.values()]
    assert given != sorted(given)
    assert len(set(given)) > 50


def test_every_variant_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "TRACED", 600)
    monkeypatch.setattr(core, "AT_ONCE", 16)
    found = core.run(tasks=600, rounds=1, domains=6)
    for name in ("decide.rate", "decide.p99", "memory.rss", "memory.traced", "growth.times"):
        assert {name, f"cohorts.{name}", f"random.{name}"} <= found.keys()
    assert "cohorts.decide.rate" not in core.run(tasks=600, rounds=1, domains=6, variants=["random"])
