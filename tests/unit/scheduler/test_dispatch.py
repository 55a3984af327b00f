from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from schemas.cards import Deadline
from services.scheduler.admission import allowance
from services.scheduler.order import decayed, virtual_deadline
from services.scheduler.policies import Policies, Policy
from services.scheduler.quotas import free_slots
from services.scheduler.records import Share

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def test_nothing_goes_out_without_a_free_slot(bench: Bench) -> None:
    bench.submit("t")
    bench.tick()
    bench.beat(service="verifier")
    bench.beat("x", draining=True)
    bench.beat("y", pool="fast")
    bench.tick()
    assert bench.assigned == []
    bench.beat(slots=1)
    bench.submit("u")
    bench.tick()
    assert [assigned.task.id for assigned in bench.assigned] == ["t"]
    assert free_slots(bench.state, bench.policies, "standard", bench.now) == 0


def test_a_silent_worker_gives_no_credits_and_is_forgotten_later(bench: Bench) -> None:
    bench.beat()
    bench.submit("t")
    bench.tick(10.0)
    assert bench.assigned == []
    bench.tick(3600.0)
    assert bench.state.workers == {}


def test_evaluation_goes_before_training_and_is_not_paced(bench: Bench) -> None:
    for number in range(20):
        bench.submit(f"t{number}")
    bench.submit("e", purpose="eval")
    bench.beat(slots=20)
    bench.tick()
    assert bench.assigned[0].task.id == "e"
    assert len(bench.assigned) == 1 + 8, "eta 1, version 0: two steps' worth of four groups"


def test_a_new_version_admits_another_step_and_the_final_one_ends_it(bench: Bench) -> None:
    for number in range(40):
        bench.submit(f"t{number}")
    bench.beat(slots=40)
    bench.tick()
    for assigned in list(bench.assigned):
        bench.verdicts(assigned.task.id, 1.0, 0.0)
    bench.tick()
    assert len(bench.assigned) == 8
    bench.checkpoint(1)
    bench.tick()
    assert len(bench.assigned) == 12
    bench.checkpoint(9, run="another")
    bench.tick()
    assert len(bench.assigned) == 12
    bench.checkpoint(2, final=True)
    bench.tick()
    assert len(bench.assigned) == 12


def test_what_the_trainer_has_taken_counts_as_accepted(bench: Bench) -> None:
    bench.checkpoint(3)
    for number in range(40):
        bench.submit(f"t{number}")
    bench.beat(slots=40)
    bench.tick()
    assert len(bench.assigned) == 8, "a scheduler that counted nothing must not flood the trainer"


def test_admission_never_goes_below_zero() -> None:
    figures = {"eta": 4, "version": 0, "groups_per_step": 10}
    assert allowance(**figures, running=20, accepted=30) == 0
    assert allowance(**figures, running=20, accepted=29) == 1
    assert allowance(**figures, running=20, accepted=60) == 0


def test_within_a_domain_short_work_goes_first_until_the_cap(bench: Bench) -> None:
    deadline = Deadline(slack=4.0, cap_s=60.0)
    assert virtual_deadline(100.0, 5.0, 0, deadline) == 120.0
    assert virtual_deadline(100.0, 500.0, 0, deadline) == 160.0
    assert virtual_deadline(100.0, 5.0, 7, deadline) == 113.0
    bench.submit("first")
    bench.submit("second")
    bench.submit("urgent", priority=5)
    bench.beat(slots=2)
    bench.tick()
    assert [assigned.task.id for assigned in bench.assigned] == ["urgent", "first"]


def test_usage_halves_in_a_half_life() -> None:
    assert decayed(Share(usage=8.0, at=0.0), 600.0, 300.0) == 2.0
    assert decayed(None, 600.0, 300.0) == 0.0
    assert decayed(Share(usage=8.0, at=100.0), 0.0, 300.0) == 8.0, "time does not run backwards"


def test_domains_share_slots_by_weight(bench: Bench) -> None:
    bench.policies = Policies(
        domains={"a": Policy(weight=3.0), "b": Policy(weight=1.0)}, group_size=2, ready_cap=10_000, eta=10_000
    )
    for number in range(2000):
        bench.submit(f"a{number}")
        bench.submit(f"b{number}", domain="b")
    for _ in range(50):
        bench.beat(slots=8)
        bench.tick(1.0)
        for assigned in bench.assigned[-8:]:
            bench.verdicts(assigned.task.id, 1.0, 0.0)
    counts = Counter(assigned.task.domain for assigned in bench.assigned)
    assert abs(counts["a"] / counts.total() - 0.75) < 0.02


def test_a_stall_is_not_billed_to_the_domain_that_was_running(bench: Bench) -> None:
    domains = {name: Policy(deadline=Deadline(estimate_s=1.0)) for name in ("a", "b")}
    bench.policies = Policies(domains=domains, group_size=2, ready_cap=10_000, eta=10_000)
    for number in range(100):
        bench.submit(f"a{number}")
        bench.submit(f"b{number}", domain="b")
    bench.beat(slots=1)
    bench.tick()
    bench.now += 60.0
    bench.verdicts(bench.assigned[-1].task.id, 1.0, 0.0)
    billed = bench.state.domains["a"].shares["train"].usage
    assert 1.8 < billed <= 2.0, "60 s held for an estimate of 1 s: at most twice the estimate is charged"
    for _ in range(10):
        bench.beat(slots=1)
        bench.tick()
        bench.now += 1.0
        bench.verdicts(bench.assigned[-1].task.id, 1.0, 0.0)
    domains_in_turn = [assigned.task.domain for assigned in bench.assigned[1:]]
    assert domains_in_turn[:2] == ["b", "b"]
    assert "a" in domains_in_turn[2:5]


def test_a_retried_task_keeps_its_place(bench: Bench) -> None:
    bench.submit("t")
    bench.beat(slots=1)
    bench.tick()
    bench.now += 0.5
    for number in range(5):
        bench.submit(f"later{number}")
    bench.verdicts("t", 0.0, 0.0)
    bench.beat(slots=0)
    bench.tick(3.0)
    bench.beat(slots=1)
    bench.tick()
    assert bench.assigned[-1].task.id == "t"
