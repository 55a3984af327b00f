from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.cards import Ladder
from schemas.tasks import DomainPaused, QuotaChanged, TaskCancelled
from services.scheduler.cli import lines
from services.scheduler.explain import explain
from services.scheduler.policies import Policy
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


def test_what_a_cohort_or_a_full_pool_leaves_is_named(bench: Bench) -> None:
    bench.policies.domains["lender"] = Policy(nominal=1, cohort="c")
    bench.policies.domains["owner"] = Policy(nominal=1, borrow=0, cohort="c")
    bench.policies.domains["big"] = Policy(slots=3)
    bench.beat(slots=4)
    for name in ("o1", "o2"):
        bench.submit(name, domain="owner")
    bench.tick()
    assert "owns 1 and may borrow 0" in causes(bench, "o2")
    for name in ("b1", "b2"):
        bench.submit(name, domain="big")
    bench.tick()
    assert bench.phase("b1") == "leased"
    assert "all 4 slots" in causes(bench, "b2")
    bench.verdicts("o1", 1.0, 1.0)
    bench.submit("small")
    bench.tick()
    assert "needs 3 slots" in causes(bench, "b2") or "all 4 slots" in causes(bench, "b2")


def test_free_slots_that_are_held_for_a_bigger_task_are_named(bench: Bench) -> None:
    bench.policies.domains["big"] = Policy(slots=2)
    bench.beat(slots=2)
    bench.submit("first")
    bench.tick()
    bench.submit("large", domain="big")
    bench.tick()
    bench.submit("later")
    bench.tick()
    assert bench.phase("later") == "ready"
    assert "it needs 2 slots" in causes(bench, "large")
    assert "held for task large" in causes(bench, "later")


def test_a_waiting_parent_says_which_sub_tasks_it_waits_for(bench: Bench) -> None:
    bench.policies.domains["j"] = Policy(ladder=Ladder(steps=(0.5,), children=2, join="all", climb=False))
    bench.submit("t", domain="j", difficulty=1.0)
    bench.run(0.0, 0.0)
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert list(found["children"].values()) == ["to come", "to come"]
    bench.derived()
    bench.run(1.0, 1.0)
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert sorted(found["children"].values()) == ["ready", "succeeded"]
    assert "1 of its 2 sub-tasks (join all)" in found["waits_for"][0]


def test_budgets_and_the_next_rung_are_shown(bench: Bench) -> None:
    bench.submit("t", domain="b", difficulty=1.0)
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert found["budget"] == {"failures": 0, "losses": 0, "timeouts": 3, "kills": 2, "next_rung": 1}
    bench.submit("e", domain="b", difficulty=1.0, purpose="eval")
    found = explain(bench.state, bench.policies, "e", bench.now)
    assert found is not None
    assert found["budget"]["next_rung"] is None


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


def test_place_says_what_evaluation_goes_first_and_what_training_is_owed(bench: Bench) -> None:
    for number in range(6):
        bench.submit(f"e{number}", domain="b", purpose="eval")
    bench.submit("t")
    bench.beat(slots=2)
    bench.tick()
    found = explain(bench.state, bench.policies, "t", bench.now)
    assert found is not None
    assert found["place"]["evaluation_first"] == 4
    assert found["place"]["training_owed_s"] == pytest.approx(2 * 5.0 / 9.0)
    assert figures(bench.state, bench.policies, bench.now)["training_owed_s"] == pytest.approx(10.0 / 9.0)
    found = explain(bench.state, bench.policies, "e5", bench.now)
    assert found is not None
    assert found["place"]["evaluation_first"] == 0, "it is one of them"


def test_started_work_stands_before_what_it_goes_before(bench: Bench) -> None:
    bench.submit("started")
    bench.run(0.0, 0.0)
    bench.beat(slots=0)
    bench.submit("later", priority=1)
    bench.tick(20.0)
    for name, ahead in (("started", 0), ("later", 1)):
        found = explain(bench.state, bench.policies, name, bench.now)
        assert found is not None
        assert found["place"]["ahead_in_domain"] == ahead


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
