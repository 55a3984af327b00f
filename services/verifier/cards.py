"""Whether a card's answers could be judged at all, asked when cards are loaded.

Invariant: what would be `infra` for every answer is refused here, once, with the card's own key.

A card that loads has keys of the right kind (schemas/cards.py); what they mean to the jail, the network and the family is
known only in the verifier.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas.cards import Card
from services.runtime.catalog import Catalog, CatalogError
from services.verifier import families
from services.verifier.engine import jail_limits
from services.verifier.families import driven, functions, programs, suite
from services.verifier.jail import JobError
from services.verifier.jail.job import MAX_SECONDS
from services.verifier.networked import allowed
from services.verifier.specs import SpecError

LONGER = {"code": driven.SLACK, "geometry": driven.SLACK}
"""Families whose runs may take so many times `limits.wall_s` on the clock: what they bound is the time with a processor."""
SKETCHES: dict[str, tuple[dict[str, Any], ...]] = {
    "code": (
        *({"kind": kind} for kind in (*functions.KINDS, *suite.KINDS)),
        *({"kind": kind, "language": "python"} for kind in programs.KINDS),
    ),
    "geometry": ({}, {"kind": "mesh"}),
}
"""Beginnings of specs, one for each set of settings that a family knows."""


def check_all(catalog: Catalog) -> None:
    """Raises CatalogError, with the file and the key, for the first card that cannot be used."""
    for name, card in catalog.cards.items():
        try:
            check(card)
        except SpecError as error:
            raise CatalogError(f"{catalog.path(name)}: {error}") from error


def check(card: Card) -> None:
    """Raises SpecError, which names the key, for a card of which no answer could be judged."""
    allowed(card.limits.network)
    name = card.verifier.family
    times = LONGER.get(name, 1)
    if card.limits.wall_s * times > MAX_SECONDS:
        raise SpecError(
            f"limits.wall_s is {card.limits.wall_s:g}: with family {name!r}, whose runs may take {times} times as long, "
            f"give at most {MAX_SECONDS / times:g}"
        )
    try:
        limits = jail_limits(card.limits)
        replace(limits, wall_s=limits.wall_s * times)
    except JobError as error:
        raise SpecError(f"limits: {error}") from error
    _check_settings(card)


def _check_settings(card: Card) -> None:
    """What a family says of its settings before it looks at a spec; wrong for every kind of spec is wrong."""
    family = families.family(card.verifier.family)
    found: list[SpecError] = []
    sketches = SKETCHES.get(card.verifier.family, ({},))
    for sketch in sketches:
        try:
            family.check_spec(sketch, card.verifier.settings)
        except SpecError as error:
            if str(error).startswith("verifier.settings"):
                found.append(error)
    if len(found) == len(sketches):
        raise found[0]
