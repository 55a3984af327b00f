from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.tasks import DomainPaused, TaskCancelled
from services.scheduler.records import WAIT_BUCKETS
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from services.scheduler.summary import figures, waited_s

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def test_figures_count_what_the_tasks_say(bench: Bench) -> None:
    for number in range(6):
        bench.submit(f"t{number}", domain="ab"[number % 2])
    bench.beat(slots=3)
    bench.tick(2.0)
    bench.verdicts(bench.assigned[0].task.id, 1.0, 0.0)
    bench.verdicts(bench.assigned[1].task.id, None, None)
    found = figures(bench.state, bench.policies, bench.now)
    phases: dict[str, int] = {}
    for entry in bench.state.live.values():
        phases[entry.state] = phases.get(entry.state, 0) + 1
    for phase, count in phases.items():
        assert found[phase] == count
    assert found["ready"] == found["pending_active"] == 3.0
    assert found["evicted_infra_verdicts"] == 1.0
    assert restore(snapshot(bench.state)).phases == {
        phase: count for phase, count in bench.state.phases.items() if count
    }


def test_tasks_of_a_paused_domain_are_inadmissible(bench: Bench) -> None:
    bench.submit("t", domain="a")
    bench.submit("u", domain="b")
    bench.send(DomainPaused(domain="a"))
    found = figures(bench.state, bench.policies, bench.now)
    assert (found["pending_active"], found["pending_inadmissible"]) == (1.0, 1.0)


def test_a_lease_that_ran_out_and_one_that_was_cancelled_are_told_apart(bench: Bench) -> None:
    bench.submit("t")
    bench.submit("u", domain="b", batch="x")
    bench.beat()
    bench.tick()
    bench.send(TaskCancelled(batch="x"))
    bench.tick(31.0)
    assert bench.state.meta.evicted == {"cancelled": 1, "lease_expired": 1}


def test_waits_are_known_to_a_factor_of_two() -> None:
    state = State()
    assert waited_s(state.meta.waits, 0.5) == 0.0
    for milliseconds in (0.0, 0.5, 3.0, 3.0, 700.0):
        state.admit(milliseconds / 1000.0)
    assert waited_s(state.meta.waits, 0.5) == 0.004
    assert waited_s(state.meta.waits, 1.0) == 1.024
    state.admit(1e9)
    assert len(state.meta.waits) == WAIT_BUCKETS


def test_the_first_lease_alone_is_an_admission(bench: Bench) -> None:
    bench.submit("t")
    bench.tick(3.0)
    bench.beat()
    bench.tick()
    bench.verdicts("t", 0.0, 0.0)
    bench.tick(5.0)
    assert len(bench.assigned) == 2
    assert sum(bench.state.meta.waits) == 1
    assert waited_s(bench.state.meta.waits, 1.0) == pytest.approx(4.096)


def test_shares_are_told_by_layer_while_something_trains(bench: Bench) -> None:
    assert "mix_gap" not in figures(bench.state, bench.policies, bench.now)
    bench.policies = msgspec.structs.replace(bench.policies, groups_per_step=100)
    for number in range(8):
        bench.submit(f"t{number}", domain="ab"[number % 2])
    bench.beat()
    bench.tick()
    for assigned in bench.assigned[:4]:
        bench.verdicts(assigned.task.id, 0.0, 1.0)
    found = figures(bench.state, bench.policies, bench.now)
    assert found["mix_wanted/foundation"] == found["mix_realised/foundation"] == 1.0
    assert found["mix_gap"] == pytest.approx(0.0, abs=0.1)
