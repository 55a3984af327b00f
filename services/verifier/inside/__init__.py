"""Trusted programs that are laid read-only into the jail. Invariant: self-contained, Python 3.9 or newer, no secrets."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def source(name: str) -> bytes:
    """Bytes of the trusted file `name` of this folder."""
    return files(__name__).joinpath(name).read_bytes()
