"""What a site is made of: cards, settings, the manner of its workers. Invariant: equal layouts give equal installations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from schemas.run import RunConfig
from services.runtime.catalog import Catalog
from services.scheduler.policies import Policies, policies_of
from tests.chaos.suite.worker import Manner

CARD = """
name = "{name}"
layer = "{layer}"
summary = "Say the word."
dataset = "words.jsonl"
weight = {weight}
[verifier]
family = "format"
[ladder]
steps = [0.0]
[timeouts]
lease_s = {lease_s}
verify_s = {verify_s}
[retry]
failures = 1
infra = 60
backoff_s = 0.05
backoff_max_s = 0.4
{more}
"""


@dataclass
class Layout:
    """What a site is made of. Times are short, so that what takes minutes in earnest takes seconds here."""

    domains: Mapping[str, float] = field(default_factory=lambda: {"echo": 1.0, "song": 2.0})
    """Name -> weight."""
    lease_s: float = 2.0
    verify_s: float = 6.0
    cards: Mapping[str, str] = field(default_factory=dict)
    """Name -> further tables of the card."""
    group_size: int = 2
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    manner: Manner = field(default_factory=Manner)


class Furniture(NamedTuple):
    """What the layout comes to."""

    config: RunConfig
    catalog: Catalog
    policies: Policies


def furnish(folder: Path, layout: Layout) -> Furniture:
    """Write the cards and `config.json` of a site into its folder, and read them as the services do."""
    cards = folder / "cards"
    cards.mkdir(parents=True, exist_ok=True)
    for name, weight in layout.domains.items():
        text = CARD.format(
            name=name,
            layer="foundation",
            weight=weight,
            lease_s=layout.lease_s,
            verify_s=layout.verify_s,
            more=layout.cards.get(name, ""),
        )
        (cards / f"{name}.toml").write_text(text)
    words = [
        {"prompt": f"say {n}", "spec": {"word": n}, "gold": str(n), "difficulty": 0.0} for n in range(64)
    ]
    (cards / "words.jsonl").write_text("\n".join(json.dumps(word) for word in words))
    table = {
        "name": "chaos",
        "domains": {"paths": [str(cards)]},
        "training": {"group_size": layout.group_size, "groups_per_step": 100_000},
        "scheduler": {"tick_s": 0.05, "ownership_s": 1.5, **layout.scheduler},
        "sampler": {"slots": layout.manner.slots, "heartbeat_s": layout.manner.heartbeat_s},
    }
    config = msgspec.convert(table, RunConfig)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    catalog = Catalog.load((str(cards),))
    return Furniture(config, catalog, policies_of(catalog.cards, config))
