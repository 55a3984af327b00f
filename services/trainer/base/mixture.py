"""Imperfect demonstrations. Invariant: pure; a wrong one differs from the gold answer and is never empty."""

from __future__ import annotations

import random
import re

from schemas.tasks import Sample
from services.trainer.base.settings import Mixture

SLIP_WEIGHTS = (7.0, 2.0, 1.0)
"""Relative frequency of a sample's slips; the first rivals the right answer, so that greedy is wrong too."""
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 '\"()[]{}=:,;-+*/.<>"


def demonstration(rng: random.Random, sample: Sample, mixture: Mixture) -> str:
    """One answer to train on: right, slipped, with a wrong argument, or with a wrong character."""
    turn = rng.random()
    if turn < mixture.right:
        return sample.gold
    if turn < mixture.right + mixture.slip and sample.slips:
        return rng.choices(sample.slips, SLIP_WEIGHTS[: len(sample.slips)])[0]
    if turn < 1.0 - mixture.noise:
        changed = wrong_argument(rng, sample.prompt, sample.gold)
        if changed is not None:
            return changed
    return wrong_character(rng, sample.gold)


def wrong_argument(rng: random.Random, prompt: str, gold: str) -> str | None:
    """The gold answer with one word or number of the prompt replaced by another of its shape, if any."""
    given = set(re.findall(r"[a-z]+|[A-Z]+|\d+", prompt))
    places = [found for found in re.finditer(r"[a-z]+|[A-Z]+|\d+", gold) if found.group() in given]
    if not places:
        return None
    place = rng.choice(places)
    old = place.group()
    new = old
    while new == old:
        new = "".join(_like(rng, character) for character in old)
    return gold[: place.start()] + new + gold[place.end() :]


def _like(rng: random.Random, character: str) -> str:
    if character.isdigit():
        return rng.choice("123456789")
    letter = rng.choice("abcdefghijklmnopqrstuvwxyz")
    return letter.upper() if character.isupper() else letter


def wrong_character(rng: random.Random, gold: str) -> str:
    """The gold answer with one character dropped, replaced or doubled, or two neighbours swapped."""
    while True:
        at = rng.randrange(len(gold))
        match rng.randrange(4):
            case 0:
                made = gold[:at] + gold[at + 1 :]
            case 1:
                made = gold[:at] + rng.choice(CHARACTERS) + gold[at + 1 :]
            case 2:
                made = gold[: at + 1] + gold[at:]
            case _:
                made = gold[:at] + gold[at : at + 2][::-1] + gold[at + 2 :]
        if made and made != gold:
            return made
