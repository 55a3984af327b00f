"""Which training task comes next. Invariant: the same run and seed give the same tasks in the same order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from schemas.cards import Card
from schemas.ids import derive

CHUNK = 32
"""Tasks drawn from a generator at a time."""


def interleave(cards: Sequence[Card]) -> Iterator[str]:
    """Domain names in proportion to their cards' weights, for ever, spread evenly (smooth weighted round robin).

    Raises:
        ValueError: no card.
    """
    if not cards:
        raise ValueError("no domain to draw from")
    total = sum(card.weight for card in cards)
    credit = {card.name: 0.0 for card in cards}
    order = {card.name: position for position, card in enumerate(cards)}
    while True:
        for card in cards:
            credit[card.name] += card.weight
        chosen = max(credit, key=lambda name: (credit[name], -order[name]))
        credit[chosen] -= total
        yield chosen


def chunk_seed(seed: int, chunk: int) -> int:
    """Seed of the `chunk`-th draw of a run: runs with different seeds share no draw."""
    return int(derive("feed", seed, chunk)[:12], 16)


def due(version: int, *, steps: int, groups_per_step: int, backlog_steps: int) -> int:
    """How many training tasks must have been submitted once `version` is out.

    A step of slack covers groups that end unusable or are replaced by sub-tasks.
    """
    return min(version + backlog_steps, steps + 2) * groups_per_step


def lacking(
    cards: Sequence[Card], begun: Mapping[str, int], submitted: Mapping[str, int], *, backlog: int
) -> Iterator[str]:
    """Domains to submit a task of, each as often as it takes until its part of the backlog is ready again.

    Where mixed sampling sets the shares, the feed must follow it: tasks in proportion to the cards' weights would leave the
    scheduler nothing to choose from but them. What was begun stands in the log, so a restarted run submits the same.
    """
    total = sum(card.weight for card in cards)
    for card in cards:
        part = max(1, math.ceil(backlog * card.weight / total))
        for _ in range(begun.get(card.name, 0) + part - submitted.get(card.name, 0)):
            yield card.name
