from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.tasks import TaskCancelled
from services.scheduler.fold import Batch, Input, pending, step
from services.scheduler.invariants import invariant
from services.scheduler.snapshot import (
    SnapshotError,
    encode_fields,
    encode_meta,
    restore,
    snapshot,
    state_digest,
)

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench


def busy(bench: Bench) -> None:
    for number in range(12):
        bench.submit(f"t{number}", "ab"[number % 2], batch="x", idempotency_key=f"k{number}")
    bench.submit("odd", domain="nowhere", idempotency_key="k0")
    bench.beat(slots=5)
    bench.tick()
    names = [assigned.task.id for assigned in bench.assigned]
    bench.beat(leases=(bench.assigned[0].lease_id,), released=(bench.assigned[1].lease_id,))
    bench.verdicts(names[2], 1.0, 0.0)
    bench.verdicts(names[3], 0.0, 0.0)
    bench.verdict(names[1], 1, 0.5)
    bench.tick(0.1)


def test_restored_state_is_sound_and_equal(bench: Bench) -> None:
    busy(bench)
    again = restore(snapshot(bench.state))
    assert snapshot(again) == snapshot(bench.state)
    assert invariant(again) == []
    assert (again.keys, again.leases, again.batches) == (
        bench.state.keys,
        bench.state.leases,
        bench.state.batches,
    )


def test_restored_state_goes_on_alike(bench: Bench) -> None:
    busy(bench)
    again = restore(snapshot(bench.state))
    for seconds in (1.0, 40.0, 200.0):
        mine = bench.tick(seconds)
        other = type(bench)()
        other.state, other.now = again, bench.now
        assert other.tick() == mine
        assert state_digest(again) == state_digest(bench.state)


def changed(bench: Bench) -> dict[str, bytes | None]:
    """What has changed since the last call, as a projection takes it."""
    names = sorted(bench.state.changed)
    bench.state.changed.clear()
    return encode_fields(bench.state, names) | {"meta": encode_meta(bench.state)}


def test_changes_add_up_to_the_snapshot(bench: Bench) -> None:
    stored: dict[str, bytes] = {}

    def store() -> None:
        for name, value in changed(bench).items():
            if value is None:
                stored.pop(name, None)
            else:
                stored[name] = value

    busy(bench)
    store()
    bench.send(TaskCancelled(batch="x"))
    store()
    bench.tick(4000.0)
    changes = changed(bench)
    assert changes["worker:w"] is None
    stored.pop("worker:w")
    stored["meta"] = changes["meta"] or b""
    assert stored == snapshot(bench.state)


def test_snapshots_of_another_fold_or_no_snapshot_are_refused(bench: Bench) -> None:
    fields = snapshot(bench.state)
    meta = msgspec.msgpack.decode(fields["meta"])
    with pytest.raises(SnapshotError, match="fold version 99"):
        restore(fields | {"meta": msgspec.msgpack.encode(meta | {"fold": 99})})
    with pytest.raises(SnapshotError, match="no meta"):
        restore({"task:t": b"x"})
    with pytest.raises(SnapshotError, match="decode"):
        restore(fields | {"task:t": b"\xc1"})


def test_nothing_expires_while_a_backlog_is_read(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    lease = bench.assigned[0].lease_id
    late = bench.now + 500.0
    step(bench.state, bench.policies, Batch(seq=1, now=late, caught_up=False))
    assert bench.phase("t") == "leased"
    assert pending(bench.state, late)
    step(bench.state, bench.policies, Batch(seq=2, now=late))
    assert lease not in bench.state.leases


def test_a_clock_that_runs_backwards_stands_still(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    step(bench.state, bench.policies, Batch(seq=1, now=2000.0))
    step(
        bench.state, bench.policies, Batch(seq=2, now=1.0, inputs=(Input(event=TaskCancelled(task_id="t")),))
    )
    assert bench.state.ended["t"].ended_at == 2000.0
