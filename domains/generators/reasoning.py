"""Tasks of the reasoning-gym package, by the name that cards use. Invariant: the same draws as the adapter makes."""

from __future__ import annotations

from domains.adapters.reasoning_gym import generate

__all__ = ["generate"]
