from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.window import (
    METADATA_LIMIT,
    Ledger,
    parse_deliveries,
    parse_finished,
    render_deliveries,
)

GAPS = st.lists(st.integers(1, 4), min_size=1, max_size=40)


@given(start=st.integers(0, 10**6), gaps=GAPS, data=st.data())
def test_commit_never_passes_an_unfinished_record(start: int, gaps: list[int], data: st.DataObject) -> None:
    ledger = Ledger(start)
    offsets: list[int] = []
    at = start
    for gap in gaps:
        at += gap - 1
        offsets.append(at)
        at += 1
    waiting = list(offsets)
    delivered: list[int] = []
    finished: set[int] = set()
    while waiting or len(finished) < len(offsets):
        if waiting and (len(delivered) == len(finished) or data.draw(st.booleans())):
            delivered.append(waiting.pop(0))
            ledger.take(delivered[-1])
        else:
            offset = data.draw(st.sampled_from([o for o in delivered if o not in finished]))
            before = ledger.committable
            assert ledger.finish(offset)
            assert not ledger.finish(offset)
            finished.add(offset)
            assert ledger.committable >= before
        unfinished = [offset for offset in delivered if offset not in finished]
        assert ledger.unfinished == len(unfinished)
        assert ledger.committable == (unfinished[0] if unfinished else ledger.next)
    assert ledger.committable == offsets[-1] + 1


@given(
    committed=st.integers(0, 10**9),
    counts=st.dictionaries(st.integers(0, 600), st.integers(1, 50), max_size=60),
)
def test_delivery_counts_survive_the_commit(committed: int, counts: dict[int, int]) -> None:
    shifted = {committed + offset: count for offset, count in counts.items()}
    text = render_deliveries(committed, shifted)
    assert len(text) <= METADATA_LIMIT
    assert parse_deliveries(committed, text) == shifted


@given(step=st.integers(2, 5), length=st.integers(500, 2000), seed=st.integers(1, 9))
def test_too_many_counts_keep_the_head(step: int, length: int, seed: int) -> None:
    counts = {offset * step: 1 + offset * seed % 10 for offset in range(length)}
    text = render_deliveries(0, counts)
    assert len(text) <= METADATA_LIMIT
    read = parse_deliveries(0, text)
    assert read == {offset: counts[offset] for offset in sorted(counts)[: len(read)]}


@given(st.text(max_size=200))
def test_foreign_metadata_is_harmless(text: str) -> None:
    parse_deliveries(7, text)
    parse_finished(7, text)


@given(
    start=st.integers(0, 10**6),
    lives=st.lists(st.lists(st.integers(0, 29), max_size=25), min_size=1, max_size=6),
    reach=st.lists(st.integers(0, 30), min_size=6, max_size=6),
)
def test_over_many_lives_nothing_is_done_twice_and_nothing_left_out(
    start: int, lives: list[list[int]], reach: list[int]
) -> None:
    """Each life takes a while of the partition, finishes some of it and dies with its last commit made."""
    finished: set[int] = set()
    committed, text = start, ""
    for ends, far in zip(lives, reach, strict=False):
        ledger = Ledger(committed, parse_deliveries(committed, text), parse_finished(committed, text))
        for offset in range(committed, start + far):
            assert ledger.take(offset) == (offset not in finished)
        for offset in ends:
            if ledger.finish(start + offset):
                finished.add(start + offset)
        committed, text = ledger.committable, ledger.metadata()
        assert all(offset in finished for offset in range(start, committed))
        known = {offset for first, end in parse_finished(committed, text) for offset in range(first, end)}
        assert known == {offset for offset in finished if offset >= committed}
