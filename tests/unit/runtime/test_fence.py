"""A replaced scheduler's late records change nothing for a reader; order across partitions proves nothing."""

from __future__ import annotations

from itertools import count

import pytest

from schemas.assignments import AttemptRevoked
from schemas.base import Event
from schemas.envelope import decode, encode
from schemas.heartbeats import WorkerHeartbeat
from schemas.states import TaskState
from services.runtime import fence as fences
from services.runtime.fence import EpochFence
from services.runtime.wire import Record

NUMBERS = count()


def record(event: Event, partition: int = 0, name: str = "") -> Record:
    raw = encode(event, id=name or f"i{next(NUMBERS)}", key="k", occurred_at=0.0, producer="p")
    return Record(
        topic="task-states",
        partition=partition,
        offset=0,
        timestamp_ms=0,
        key="k",
        envelope=decode(raw),
        event=event,
        redelivered=0,
    )


def state(epoch: int, shard: int = 0) -> TaskState:
    return TaskState(task_id="t", domain="d", purpose="train", state="ready", epoch=epoch, shard=shard)


def test_what_is_older_in_its_partition_is_left_out() -> None:
    fence = EpochFence()
    late = record(state(1))
    records = [record(state(1)), record(state(2)), late, record(state(2)), record(state(1), partition=1)]
    assert list(fence.admitted(records)) == [item for item in records if item is not late]
    assert fence.dropped == 1


def test_shards_and_events_without_an_epoch_are_no_business_of_each_other() -> None:
    fence = EpochFence()
    records = [
        record(state(5)),
        record(state(1, shard=1)),
        record(WorkerHeartbeat(worker="w", service="sampler")),
    ]
    assert list(fence.admitted(records)) == records


def test_a_transition_that_a_successor_tells_again_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "REMEMBERED", 3)
    fence = EpochFence()
    first = [record(state(1), name="t:1:9:0"), record(state(1), name="t:1:9:1")]
    again = [record(state(2), name="t:1:9:0"), record(state(2), name="t:1:9:1")]
    more = [record(state(2), name=f"t:2:10:{number}") for number in range(3)]
    assert list(fence.admitted([*first, *again, *more])) == [*first, *more]
    assert (fence.dropped, fence.again) == (0, 2)
    assert list(fence.admitted(first)) == [], "of an older epoch by now"
    assert list(fence.admitted(again[:1])) == again[:1], "only the newest are remembered"


def test_a_lease_that_is_told_again_passes() -> None:
    lease = record(AttemptRevoked(lease_id="l", task_id="t", attempt=1, reason="expired", epoch=1), name="l")
    assert list(EpochFence().admitted([lease, lease])) == [lease, lease]
