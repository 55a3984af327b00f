from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.heartbeats import WorkerHeartbeat
from services.scheduler.fold import Batch, Input, step

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def test_a_lease_lives_as_long_as_it_is_named(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    lease = bench.assigned[0].lease_id
    for _ in range(5):
        bench.beat(leases=(lease,))
        bench.tick(29.0)
    assert bench.phase("t") == "running"
    assert bench.state.live["t"].worker == "w"
    bench.beat(leases=())
    bench.tick(2.0)
    assert bench.phase("t") == "backoff"


def test_an_old_heartbeat_in_a_backlog_renews_from_its_own_time(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    lease = bench.assigned[0].lease_id
    beat = WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=8, leases=(lease,))
    late = Batch(seq=1, now=1500.0, caught_up=False, inputs=(Input(event=beat, at=1010.0),))
    step(bench.state, bench.policies, late)
    assert bench.state.live["t"].due_at == 1040.0
    assert bench.state.workers["w"].seen_at == 1010.0


def test_a_worker_s_clock_that_is_ahead_gives_no_extra_life(bench: Bench) -> None:
    beat = WorkerHeartbeat(worker="w", service="sampler", pool="standard", slots=8)
    late = Batch(seq=1, now=1500.0, caught_up=False, inputs=(Input(event=beat, at=9e9),))
    step(bench.state, bench.policies, late)
    assert bench.state.workers["w"].seen_at == 1500.0


def test_work_that_was_given_up_says_nothing_about_how_long_it_takes(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.now += 9.0
    bench.beat(released=(bench.assigned[0].lease_id,), reason="abandoned")
    assert bench.phase("t") == "verifying"
    assert bench.state.domains["a"].seconds == []
