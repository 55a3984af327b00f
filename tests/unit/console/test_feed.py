"""The order of training tasks."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from schemas.cards import Card, parse_card
from services.console.feed import chunk_seed, due, interleave, lacking


def card(name: str, weight: float = 1.0) -> Card:
    text = f'name = "{name}"\nlayer = "tool"\nsummary = "s"\ngenerator = "m:f"\nweight = {weight}\n[verifier]\nfamily = "call"'
    return parse_card(text, "test")


def test_equal_weights_take_turns() -> None:
    names = list(islice(interleave([card("a"), card("b"), card("c")]), 6))
    assert sorted(names[:3]) == ["a", "b", "c"]
    assert names[:3] == names[3:]


def test_shares_follow_the_weights_over_any_stretch() -> None:
    names = list(islice(interleave([card("a", 3.0), card("b", 1.0)]), 400))
    assert Counter(names) == {"a": 300, "b": 100}
    for start in range(396):
        assert 2 <= names[start : start + 4].count("a") <= 4


def test_no_domain_is_an_error() -> None:
    with pytest.raises(ValueError, match="no domain"):
        next(interleave([]))


def test_runs_with_different_seeds_share_no_draw() -> None:
    seeds = {chunk_seed(seed, chunk) for seed in range(20) for chunk in range(20)}
    assert len(seeds) == 400


def test_the_backlog_grows_with_the_version_and_ends_with_the_run() -> None:
    def tasks(version: int) -> int:
        return due(version, steps=10, groups_per_step=4, backlog_steps=3)

    assert tasks(0) == 12
    assert tasks(5) == 32
    assert tasks(9) == tasks(10) == 48


def test_the_feed_follows_what_was_begun() -> None:
    cards = [card("a", 3.0), card("b", 1.0)]
    assert Counter(lacking(cards, {}, {}, backlog=8)) == {"a": 6, "b": 2}
    sent = {"a": 6, "b": 2}
    assert list(lacking(cards, {}, sent, backlog=8)) == []
    assert Counter(lacking(cards, {"b": 2, "a": 1}, sent, backlog=8)) == {"a": 1, "b": 2}


def test_every_domain_has_a_task_ready_however_small_its_weight() -> None:
    assert Counter(lacking([card("a", 1000.0), card("b", 0.01)], {}, {}, backlog=10))["b"] == 1


def test_a_restarted_feed_submits_what_it_had_submitted() -> None:
    cards = [card("a"), card("b")]
    begun = {"a": 40, "b": 3}
    again = Counter(lacking(cards, begun, {}, backlog=8))
    assert again == {"a": 44, "b": 7}
