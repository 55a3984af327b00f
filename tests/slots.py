"""Numbers of slots for tests that make their own, so that tests that run side by side never meet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from services.verifier.jail.numbers import reserve

MOST = 256


@cache
def _numbers() -> Iterator[int]:
    return iter(reserve(MOST).numbers)  # held until this process ends


def number() -> int:
    """A number that no slot on this machine has, and that no other process is given."""
    return next(_numbers())
