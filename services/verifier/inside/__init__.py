"""Trusted programs that are laid read-only into the jail. Invariant: self-contained, Python 3.9 or newer, no secrets."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def source(name: str) -> bytes:
    """Bytes of the trusted file `name` of this folder, as it is laid under /t: there the folder's modules have no package."""
    raw = files(__name__).joinpath(name).read_bytes()
    return raw.replace(f"from {__name__} import".encode(), b"import").replace(f"{__name__}.".encode(), b"")
