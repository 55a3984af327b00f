"""The stream of demonstrations. Invariant: no held-out prompt enters it; shares are exact."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from schemas.cards import Card, CardError, load_card
from schemas.tasks import Sample
from services.runtime.catalog import Generator, Split, split_of
from services.trainer.base.mixture import demonstration
from services.trainer.base.settings import Build

DRAWS = 1000
"""Draws in a row of the unwanted split before a domain is called too small."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A domain that demonstrations are drawn from."""

    domain: str
    layer: str
    generate: Generator
    options: dict[str, Any]


def sources(folder: Path, layers: Sequence[str]) -> list[Source]:
    """The domains whose cards lie in `folder`/<layer>, in order of layer and name.

    Raises:
        CardError: no card found, a card that does not load, or a generator that cannot be imported.
    """
    cards = [load_card(path) for layer in layers for path in sorted((folder / layer).glob("*.toml"))]
    if not cards:
        raise CardError(f"{folder}: no cards below {', '.join(layers)}; name the folder that holds them")
    return [_source(card) for card in cards]


def _source(card: Card) -> Source:
    module, _, function = card.generator.partition(":")
    try:
        generate = cast("Generator", getattr(importlib.import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise CardError(f"{card.name}: generator {card.generator!r} cannot be imported: {error}") from error
    return Source(domain=card.name, layer=card.layer, generate=generate, options=card.options)


def draw(rng: random.Random, source: Source, split: Split) -> Sample:
    """One sample of the wanted split, at a uniform difficulty.

    Raises:
        CardError: the generator gives only prompts of the other split.
    """
    for _ in range(DRAWS):
        sample = source.generate(rng, rng.random(), source.options)
        if split_of(source.domain, sample.prompt) == split:
            return sample
    raise CardError(
        f"{source.domain}: {DRAWS} draws gave no {split} prompt; the generator has too few prompts"
    )


def demonstrations(origin: Sequence[Source], build: Build) -> Iterator[tuple[str, str]]:
    """Endless `(prompt, answer)` pairs; every round visits each share once, in a new order."""
    rng = random.Random(build.seed)
    shares = [source for source in origin for _ in range(2 if source.layer in build.double_layers else 1)]
    while True:
        rng.shuffle(shares)
        for source in shares:
            sample = draw(rng, source, "train")
            yield sample.prompt, demonstration(rng, sample, build.mixture)
