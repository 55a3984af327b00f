from __future__ import annotations

import pytest

from services.runtime.window import Ledger, parse_deliveries, render_deliveries


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
