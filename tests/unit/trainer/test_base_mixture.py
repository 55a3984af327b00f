"""Imperfect demonstrations: their shares, their errors, and that nothing held out is shown."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from schemas.cards import LAYERS, CardError
from schemas.tasks import Sample
from services.runtime.catalog import split_of
from services.trainer.base.demonstrations import Source, demonstrations, draw, sources
from services.trainer.base.mixture import demonstration, wrong_argument, wrong_character
from services.trainer.base.settings import Build, Mixture

DOMAINS = Path(__file__).parents[3] / "domains"
SAMPLE = Sample(prompt="sh move ab to cd>", spec={}, gold="mv ab cd", slips=("move ab cd", "mv cd ab"))


def test_shares_follow_the_mixture() -> None:
    rng = random.Random(0)
    counts = Counter(demonstration(rng, SAMPLE, Mixture()) for _ in range(20_000))
    assert counts[SAMPLE.gold] / 20_000 == pytest.approx(Mixture().right, abs=0.015)
    # A noisy copy may become a slip by chance, hardly ever.
    slipped = [counts[slip] / 20_000 for slip in SAMPLE.slips]
    assert sum(slipped) == pytest.approx(Mixture().slip, abs=0.015)
    assert slipped[0] > slipped[1]


def test_without_slips_the_share_goes_to_wrong_arguments() -> None:
    rng = random.Random(0)
    bare = Sample(prompt=SAMPLE.prompt, spec={}, gold=SAMPLE.gold)
    counts = Counter(demonstration(rng, bare, Mixture()) for _ in range(5_000))
    assert counts[bare.gold] / 5_000 == pytest.approx(Mixture().right, abs=0.03)


def test_shares_must_sum_to_one() -> None:
    with pytest.raises(ValueError, match="must sum to 1"):
        Mixture(right=0.9)


def test_a_wrong_argument_keeps_the_form() -> None:
    rng = random.Random(1)
    for _ in range(200):
        made = wrong_argument(rng, "py q times 12 plus 7>", "q*12+7")
        assert made is not None
        assert made != "q*12+7"
        assert [len(part) for part in made.replace("*", "+").split("+")] == [1, 2, 1]


def test_no_argument_no_change() -> None:
    assert wrong_argument(random.Random(0), "upper ab>", "AB") is None


def test_a_wrong_character_is_wrong_and_not_empty() -> None:
    rng = random.Random(2)
    for gold in ("a", "aa", "mv ab cd"):
        for _ in range(200):
            made = wrong_character(rng, gold)
            assert made
            assert made != gold


def test_held_out_prompts_never_appear_and_long_horizon_counts_twice() -> None:
    origin = sources(DOMAINS, LAYERS)
    build = Build()
    doubled = sum(source.layer == "long_horizon" for source in origin)
    round_size = len(origin) + doubled
    pairs = list(islice(demonstrations(origin, build), round_size * 20))
    stages = sum(prompt.startswith("do ") for prompt, _ in pairs)
    assert stages == 2 * doubled * 20
    seen = {prompt for prompt, _ in pairs}
    for source in origin:
        rng = random.Random(f"{source.domain}")
        held = {draw(rng, source, "heldout").prompt for _ in range(20)}
        assert all(split_of(source.domain, prompt) == "heldout" for prompt in held)
        assert not held & seen


def test_the_stream_is_seeded() -> None:
    origin = sources(DOMAINS, LAYERS)
    first, again = (list(islice(demonstrations(origin, Build(seed=3)), 100)) for _ in range(2))
    assert first == again
    assert first != list(islice(demonstrations(origin, Build(seed=4)), 100))


def test_a_folder_without_cards_is_named(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="no cards below"):
        sources(tmp_path, LAYERS)


def test_a_generator_with_one_prompt_is_refused() -> None:
    only = Source(domain="d", layer="tool", generate=lambda _rng, _difficulty, _options: SAMPLE, options={})
    wanted = "train" if split_of("d", SAMPLE.prompt) == "heldout" else "heldout"
    with pytest.raises(CardError, match="too few prompts"):
        draw(random.Random(0), only, wanted)  # type: ignore[arg-type]
