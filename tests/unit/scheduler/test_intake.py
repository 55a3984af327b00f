from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.tasks import DomainPaused, DomainResumed, QuotaChanged, TaskCancelled
from services.scheduler.effects import Publish, Revoke

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def test_the_same_submission_twice_is_one_task(bench: Bench) -> None:
    bench.submit("t", spec={"x": 1, "y": 2})
    assert bench.submit("t", spec={"y": 2, "x": 1}) == []
    assert bench.state.meta.submitted == 1


def test_a_duplicate_of_an_ended_task_is_recognised(bench: Bench) -> None:
    bench.submit("t")
    bench.send(TaskCancelled(task_id="t"))
    assert bench.submit("t") == []
    assert bench.phase("t") == "cancelled"


def test_other_content_under_a_taken_id_is_refused_and_the_first_task_stands(bench: Bench) -> None:
    bench.submit("t")
    effects = bench.submit("t", prompt="3 + 3")
    assert [effect.event.state for effect in effects if isinstance(effect, Publish)] == ["rejected", "ready"]
    assert bench.state.meta.submitted == 1


def test_an_idempotency_key_names_one_content(bench: Bench) -> None:
    bench.submit("t", idempotency_key="k")
    assert bench.submit("u", idempotency_key="k") == []
    bench.submit("v", idempotency_key="k", prompt="other")
    assert bench.phase("v") == "rejected"
    assert "'k'" in bench.state.ended["v"].reason
    assert "\n" not in bench.state.ended["v"].reason


def test_an_unknown_domain_is_rejected_with_a_reason(bench: Bench) -> None:
    bench.submit("t", domain="nowhere")
    assert bench.phase("t") == "rejected"
    assert "nowhere" in bench.state.ended["t"].reason
    assert "nowhere" not in bench.state.domains


def test_ready_tasks_of_a_domain_are_bounded(bench: Bench) -> None:
    for number in range(51):
        bench.submit(f"t{number}")
    bench.submit("other", domain="b")
    assert bench.phase("t50") == "rejected"
    assert bench.phase("other") == "ready"


def test_cancelling_a_batch_takes_back_its_leases(bench: Bench) -> None:
    bench.submit("t", batch="x")
    bench.submit("u", batch="x")
    bench.submit("v")
    bench.beat(slots=1)
    bench.tick()
    effects = bench.send(TaskCancelled(batch="x", reason="enough"))
    assert [effect.event.reason for effect in effects if isinstance(effect, Revoke)] == ["cancelled"]
    assert (bench.phase("t"), bench.phase("u"), bench.phase("v")) == ("cancelled", "cancelled", "ready")
    bench.tick()
    assert bench.assigned[-1].task.id == "v"


def test_a_task_read_after_its_batch_was_cancelled_ends_cancelled(bench: Bench) -> None:
    bench.send(TaskCancelled(batch="x"))
    bench.submit("late", batch="x")
    bench.submit("other", batch="y")
    bench.beat(slots=4)
    bench.tick()
    assert (bench.phase("late"), bench.phase("other")) == ("cancelled", "leased")
    assert [assigned.task.id for assigned in bench.assigned] == ["other"]


def test_cancelling_what_is_not_there_is_counted(bench: Bench) -> None:
    assert bench.send(TaskCancelled(task_id="t")) == []
    assert bench.state.meta.counters["cancel_of_unknown_task"] == 1


def test_pause_resume_and_quota(bench: Bench) -> None:
    for number in range(4):
        bench.submit(f"t{number}")
    bench.beat()
    bench.send(DomainPaused(domain="a"))
    bench.tick()
    assert bench.assigned == []
    bench.send(DomainResumed(domain="a"))
    bench.send(QuotaChanged(domain="a", nominal=3))
    bench.tick()
    assert len(bench.assigned) == 3
    bench.send(QuotaChanged(domain="nowhere", nominal=3))
    assert bench.state.meta.counters["control_of_unknown_domain"] == 1
