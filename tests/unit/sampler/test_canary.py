"""The canary: what is compared, and what refuses a version."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from services.sampler import canary
from services.sampler.canary import Canary
from services.sampler.engines.port import Score, Scored, VersionRefusedError

GOOD = Canary(prompts=[[1, 2], [3]], answers=[[4, 5], [6]], logprobs=[[-1.0, -2.0], [-0.5]])


def echo(shift: float = 0.0) -> Score:
    def score(sequences: list[Scored]) -> list[list[float]]:
        known = {(1, 2): [-1.0, -2.0 + shift], (3,): [-0.5]}
        return [known[tuple(prompt)][: len(answer)] for prompt, answer in sequences]

    return score


def test_equal_logprobs_pass_and_the_difference_is_kept() -> None:
    seen: list[float] = []
    canary.checker(GOOD, 0.02, 64, seen)(echo(0.01))
    assert seen == pytest.approx([0.01])


@pytest.mark.parametrize("shift", [0.03, -0.03, math.nan, math.inf, -math.inf])
def test_a_difference_beyond_the_tolerance_refuses(shift: float) -> None:
    with pytest.raises(VersionRefusedError, match="canary: log-probabilities differ"):
        canary.checker(GOOD, 0.02, 64)(echo(shift))


def test_missing_numbers_refuse() -> None:
    with pytest.raises(VersionRefusedError, match="differ by inf"):
        canary.checker(GOOD, 0.02, 64)(lambda sequences: [[] for _ in sequences])


def test_answers_are_cut_to_the_context_and_nothing_that_fits_refuses() -> None:
    asked: list[Scored] = []

    def score(sequences: list[Scored]) -> list[list[float]]:
        asked.extend(sequences)
        return echo()(sequences)

    canary.checker(GOOD, 0.02, 4)(score)
    assert asked == [([1, 2], [4]), ([3], [6])]
    with pytest.raises(VersionRefusedError, match="max_model_len 2"):
        canary.checker(GOOD, 0.02, 2)(score)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "not json",
        {"prompts": [], "answers": [], "logprobs": []},
        {"prompts": [[1]], "answers": [[2]], "logprobs": []},
        {"prompts": [[1]], "answers": [[2, 3]], "logprobs": [[-1.0]]},
        {"prompts": [[]], "answers": [[2]], "logprobs": [[-1.0]]},
    ],
)
def test_an_unusable_canary_file_refuses_with_its_path(tmp_path: Path, content: object) -> None:
    if content is not None:
        (tmp_path / canary.NAME).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(VersionRefusedError, match=r"canary\.json"):
        canary.read(tmp_path)
