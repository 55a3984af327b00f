from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.tasks import DomainPaused, QuotaChanged, TaskCancelled
from services.scheduler.cli import lines
from services.scheduler.explain import explain
from services.scheduler.summary import figures, summary

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def causes(bench: Bench, task: str) -> str:
    found = explain(bench.state, bench.policies, task, bench.now)
    assert found is not None
    return " | ".join(found["waits_for"])


def test_every_cause_of_waiting_is_named(bench: Bench) -> None:
    bench.submit("t")
    assert "no sampler" in causes(bench, "t")
    bench.beat(slots=1)
    assert "its turn" in causes(bench, "t")
    bench.send(DomainPaused(domain="a"))
    assert "paused" in causes(bench, "t")
    bench.submit("b1", domain="b")
    bench.submit("b2", domain="b")
    bench.send(QuotaChanged(domain="b", nominal=1))
    bench.tick()
    waiting = causes(bench, "b2")
    assert "quota" in waiting
    assert "slots" in waiting
    bench.checkpoint(1, final=True)
    assert "final" in causes(bench, "b2")


@pytest.mark.parametrize("phase", ["leased", "verifying", "backoff"])
def test_work_under_way_says_what_it_waits_for(bench: Bench, phase: str) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    if phase == "verifying":
        bench.beat(released=(bench.assigned[0].lease_id,))
    if phase == "backoff":
        bench.verdicts("t", None, None)
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert found["state"] == phase
    assert len(found["waits_for"]) == 1


def test_place_counts_what_is_ahead(bench: Bench) -> None:
    bench.submit("one")
    bench.submit("two")
    bench.submit("three", priority=1)
    found = explain(bench.state, bench.policies, "two", bench.now)
    assert found is not None
    assert found["place"]["ahead_in_domain"] == 2
    assert found["place"]["domain_rank"] == 1


def test_ended_and_unknown_tasks(bench: Bench) -> None:
    bench.submit("t")
    bench.send(TaskCancelled(task_id="t", reason="enough"))
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert (found["state"], found["reason"]) == ("cancelled", "enough")
    assert explain(bench.state, bench.policies, "never", bench.now) is None


def test_summary_adds_up(bench: Bench) -> None:
    for number in range(5):
        bench.submit(f"t{number}")
    bench.beat(slots=2)
    bench.tick()
    bench.verdicts(bench.assigned[0].task.id, 1.0, 1.0)
    found = summary(bench.state, bench.policies, bench.now)
    assert found["domains"]["a"]["states"] == {"ready": 3, "leased": 1, "succeeded": 1}
    assert len(found["leases"]) == 1
    numbers = figures(bench.state, bench.policies, bench.now)
    assert numbers["submitted"] == numbers["live"] + numbers["terminal"] == 5
    text = "\n".join(lines(found))
    assert "succeeded" in text
    assert "worker=w" in text
