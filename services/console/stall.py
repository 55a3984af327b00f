"""When a run counts as stuck. Invariant: not while an attempt is under way that may still take its time by its card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.cards import Card
from schemas.states import UNDER_WAY

STALLED_S = 900.0
"""A step that takes longer than this, with no attempt under way, ends the run with a line."""


def patience_s(states: Iterable[str], cards: Mapping[str, Card]) -> float:
    """Seconds that nothing new is waited for; `states`: of the live tasks."""
    if any(state in UNDER_WAY for state in states):
        timeouts = [card.timeouts for card in cards.values()]
        return STALLED_S + max((each.attempt_s + each.verify_s for each in timeouts), default=0.0)
    return STALLED_S
