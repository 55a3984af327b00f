from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schemas.journal import BatchFolded, Range
from services.scheduler.journal import Fenced, Gap, Journal, counts, moved, outgoing, same_division
from services.scheduler.records import Meta
from services.scheduler.turns import steady_clock


def entry(epoch: int, seq: int) -> BatchFolded:
    return BatchFolded(run="run", seq=seq, now=0.0, epoch=epoch)


def test_only_the_newest_claim_s_entries_count() -> None:
    meta = Meta(epoch=3, seq=10)
    assert counts(meta, entry(3, 11))
    assert counts(meta, entry(4, 11)), "a claim"
    assert not counts(meta, entry(3, 10)), "read before"
    assert not counts(meta, entry(2, 11)), "a scheduler that was replaced"
    assert not counts(Meta(epoch=4, seq=11), entry(4, 11)), "the claim that lost"


def test_ranges_are_what_moved_in_the_order_of_the_fold() -> None:
    before = {"rewards/0": 5, "tasks/1": 2, "tasks/0": 7}
    after = {"rewards/0": 9, "tasks/1": 4, "tasks/0": 7, "heartbeats/1": 3}
    assert moved(before, after) == (
        Range(topic="heartbeats", partition=1, first=0, next=3),
        Range(topic="tasks", partition=1, first=2, next=4),
        Range(topic="rewards", partition=0, first=5, next=9),
    )


def test_two_claims_at_once_can_be_told_apart() -> None:
    assert outgoing(entry(1, 1), nonce="x").id != outgoing(entry(1, 1), nonce="y").id
    assert outgoing(entry(1, 1)).id == outgoing(entry(1, 1)).id


def test_the_clock_starts_no_earlier_than_the_log() -> None:
    clock = steady_clock(4e9)
    first = clock()
    assert first >= 4e9
    assert clock() >= first


def test_a_missing_entry_is_refused() -> None:
    with pytest.raises(Gap, match=r"entry 12 of epoch 3 follows on entry 10 of epoch 3"):
        counts(Meta(epoch=3, seq=10), entry(3, 12))
    with pytest.raises(Gap):
        counts(Meta(epoch=3, seq=10), entry(4, 12))
    with pytest.raises(Gap, match=r"set scheduler\.shards = 1"):
        same_division(entry(1, 1), 0, 2)


def test_an_entry_at_another_offset_than_expected_fences_its_writer() -> None:
    class Log:
        async def append(self, item: Any, *, partition: int) -> int:
            assert partition == 2
            return 7

    journal: Any = Journal(Log(), 2, 7)  # type: ignore[arg-type]
    asyncio.run(journal.append(entry(1, 1)))
    assert journal.position == 8
    with pytest.raises(Fenced, match="another scheduler has taken over"):
        asyncio.run(journal.append(entry(1, 2)))
