"""How long a run may bring nothing new."""

from __future__ import annotations

import pytest

from schemas.cards import parse_card
from services.console.stall import STALLED_S, patience_s

CARD = """
name = "{name}"
layer = "tool"
summary = "s"
generator = "a:b"
[verifier]
family = "format"
[timeouts]
attempt_s = {attempt_s}
verify_s = 100
"""
CARDS = {
    name: parse_card(CARD.format(name=name, attempt_s=attempt_s), "card")
    for name, attempt_s in (("short", 60), ("long", 50_000))
}


@pytest.mark.parametrize("state", ["leased", "running", "verifying"])
def test_an_attempt_under_way_has_its_card_s_time(state: str) -> None:
    assert patience_s(["ready", state], CARDS) == STALLED_S + 50_100.0


def test_without_one_a_run_that_brings_nothing_is_stuck_soon() -> None:
    assert patience_s(["ready", "waiting", "backoff"], CARDS) == STALLED_S
    assert patience_s([], {}) == STALLED_S
