from __future__ import annotations

import pytest

from services.runtime.window import Ledger, parse_deliveries, parse_finished, render_deliveries


def test_counts_are_run_lengths() -> None:
    assert render_deliveries(10, {13: 2, 14: 2, 16: 1, 9: 5}) == "0x3 2x2 0x1 1x1"
    assert parse_deliveries(10, "0x3 2x2 0x1 1x1") == {13: 2, 14: 2, 16: 1}
    assert parse_deliveries(10, "someone else's note") == {}


def test_deliveries_add_up_over_lives_unless_the_worker_survived() -> None:
    first = Ledger(0)
    for offset in range(3):
        first.take(offset)
    first.finish(0)
    assert first.metadata() == "1x2"
    assert first.metadata(survived=True) == ""
    second = Ledger(1, parse_deliveries(1, first.metadata()))
    assert (second.deliveries(1), second.deliveries(2), second.deliveries(3)) == (1, 1, 0)
    second.take(1)
    assert second.metadata() == "2x1 1x1"
    assert second.metadata(survived=True) == "1x2"


def test_offsets_go_up_and_strangers_are_not_finished() -> None:
    ledger = Ledger(5)
    assert not ledger.finish(5)
    ledger.take(5)
    ledger.take(9)
    assert not ledger.finish(7)
    with pytest.raises(ValueError, match="delivered already"):
        ledger.take(9)


def test_what_is_finished_behind_a_long_one_is_not_done_again() -> None:
    first = Ledger(0)
    for offset in range(6):
        first.take(offset)
    for offset in (1, 2, 4):
        first.finish(offset)
    assert first.committable == 0
    assert first.metadata() == "1x1 dx2 1x1 dx1 1x1"
    assert parse_finished(0, first.metadata()) == [(1, 3), (4, 5)]
    second = Ledger(0, parse_deliveries(0, first.metadata()), parse_finished(0, first.metadata()))
    assert second.take(0)
    # Not taken again yet, and known all the same to the next life.
    assert second.metadata() == "2x1 dx2 1x1 dx1 1x1"
    assert [second.take(offset) for offset in range(1, 7)] == [False, False, True, False, True, True]
    assert second.unfinished == 4
    second.finish(0)
    assert second.committable == 3


def test_a_million_finished_behind_a_long_one_are_one_word() -> None:
    ledger = Ledger(0)
    ledger.take(0)
    for offset in range(1, 1_000_001):
        ledger.take(offset)
        ledger.finish(offset)
    assert ledger.metadata() == "1x1 dx1000000"
    assert parse_finished(0, ledger.metadata()) == [(1, 1_000_001)]
    assert parse_deliveries(0, ledger.metadata()) == {0: 1}


def test_progress_makes_deliveries_count_for_nothing() -> None:
    ledger = Ledger(0, {0: 2})
    assert not ledger.progressed(0)
    ledger.take(0)
    assert ledger.metadata() == "3x1"
    assert ledger.progressed(0)
    assert (ledger.deliveries(0), ledger.metadata()) == (0, "")
    assert ledger.finish(0)
    assert not ledger.progressed(0)
