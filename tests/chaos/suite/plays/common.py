"""What all plays share. Invariant: the short and the long form differ in numbers only."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tests.chaos.suite.layout import Layout
from tests.chaos.suite.site import Site
from tests.chaos.suite.worker import Manner

LONG = os.environ.get("TEMPER_CHAOS") == "long"
CALM = Manner(fails=0.1, broken=0.0, silent=0.0, late=0.0, twice=0.0)
"""A worker whose attempts are lost only if something else goes wrong."""
SLOW = msgspec.structs.replace(Manner(), slots=6, shortest_s=0.05, longest_s=0.3)
HOLDING = msgspec.structs.replace(Manner(), slots=6, shortest_s=0.4, longest_s=2.0)
"""Attempts that outlast the moment between a worker's heartbeat and what is done to it."""
WORKER = "tests.chaos.suite.worker"
SCHEDULER = "services.scheduler"


def more(count: int) -> int:
    """Tasks of a step: the long form has four times as many."""
    return count * (4 if LONG else 1)


def layout_of(manner: Manner, **fields: object) -> Layout:
    """The usual layout with another manner and other fields."""
    layout = Layout(manner=manner)
    for name, value in fields.items():
        setattr(layout, name, value)
    return layout


async def marked(site: Site, prefix: str, within_s: float) -> Path:
    """Wait until a fault has left its mark.

    Raises:
        AssertionError: it has not in time.
    """
    found: list[Path] = []

    def there() -> bool:
        found[:] = list(site.folder.glob(f"{prefix}_*"))
        return bool(found)

    await site.until(f"fault {prefix}", there, within_s)
    return found[0]
