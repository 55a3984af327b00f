"""The reasoning-gym domains: seeded, of the wanted size, answers as data."""

from __future__ import annotations

import random

import pytest

from domains.generators.reasoning import generate
from services.runtime.catalog import Catalog
from services.verifier.families import document

pytest.importorskip("reasoning_gym")
CARDS = Catalog.load(["domains/reasoning"]).cards


def test_there_are_three() -> None:
    assert sorted(CARDS) == [
        "reasoning.chain_sum",
        "reasoning.isomorphic_strings",
        "reasoning.letter_counting",
    ]


@pytest.mark.parametrize("domain", sorted(CARDS))
def test_each_is_seeded_and_its_spec_accepted(domain: str) -> None:
    card = CARDS[domain]
    one = generate(random.Random(5), 0.5, card.options)
    assert one == generate(random.Random(5), 0.5, card.options)
    assert one.prompt != generate(random.Random(6), 0.5, card.options).prompt
    document.check_spec(one.spec, card.verifier.settings)


def test_difficulty_scales_the_numbers() -> None:
    options = CARDS["reasoning.chain_sum"].options

    def digits(difficulty: float) -> int:
        return max(
            len(word)
            for seed in range(20)
            for word in generate(random.Random(seed), difficulty, options).prompt.split()
            if word.isdigit()
        )

    assert digits(0.0) == 1
    assert digits(1.0) == 2


def test_a_missing_data_set_is_named() -> None:
    with pytest.raises(ValueError, match=r"options\.dataset is missing"):
        generate(random.Random(0), 0.5, {})
