"""Samples put together from segments."""

from __future__ import annotations

import pytest

from schemas.trajectories import Finish, Span
from services.sampler.engines.port import Segment
from services.sampler.spans import Assembly


def segment(tokens: list[int], version: int, finish: Finish | None = None) -> Segment:
    return Segment("r", 0, tokens, [-float(token) for token in tokens], version, finish)


def test_spans_cover_the_tokens_and_merge_neighbours_of_one_version() -> None:
    sample = Assembly()
    for part in (
        segment([1], 4),
        segment([2, 3], 4),
        segment([], 5),
        segment([4], 6),
        segment([5], 6, "stop"),
    ):
        sample.add(part, 1.0)
    assert sample.token_ids == [1, 2, 3, 4, 5]
    assert sample.logprobs == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert sample.spans() == (Span(version=4, start=0, end=3), Span(version=6, start=3, end=5))
    assert sample.finish == "stop"


def test_times_are_those_of_the_first_and_last_token() -> None:
    sample = Assembly()
    sample.add(segment([1], 0), 5.0)
    sample.add(segment([2], 0, "length"), 7.5)
    assert (sample.first_at, sample.last_at) == (5.0, 7.5)


def test_nothing_follows_the_end_and_every_token_has_a_logprob() -> None:
    sample = Assembly()
    sample.add(segment([1], 0, "stop"), 0.0)
    with pytest.raises(ValueError, match="finished already"):
        sample.add(segment([2], 0), 0.0)
    with pytest.raises(ValueError, match="2 tokens with 1"):
        Assembly().add(Segment("r", 0, [1, 2], [-1.0], 0), 0.0)


def test_a_sample_without_tokens_has_no_spans() -> None:
    assert Assembly().spans() == ()
