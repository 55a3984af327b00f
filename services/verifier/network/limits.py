"""What one proxy may use up, and what it writes down of each connection.

Invariant: bytes are taken from one budget for all connections of the job together, before they are passed on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """Bounds of one proxy, that is, of one job. Seconds and bytes; `up` is what the program sends, `down` what it gets.

    `at_once` connections are served at a time (more wait in the kernel's queue), `connections` in all; `head_s` bounds
    the reading of a request's head, `connect_s` resolving and connecting, `idle_s` silence, `total_s` a connection.
    """

    at_once: int = 16
    connections: int = 512
    head_bytes: int = 16 << 10
    up_bytes: int = 16 << 20
    down_bytes: int = 64 << 20
    head_s: float = 10.0
    connect_s: float = 10.0
    idle_s: float = 30.0
    total_s: float = 300.0
    log_lines: int = 100


class OverBudgetError(Exception):
    """The job has sent or received all the bytes that it may."""


@dataclass(slots=True)
class Budget:
    """What is left for all connections of the job together, in bytes."""

    up: int
    down: int


@dataclass(slots=True)
class Record:
    """What became of one connection; `end` is empty while it goes on."""

    target: str = "?"
    to: str = ""
    up: int = 0
    down: int = 0
    end: str = ""

    def line(self) -> str:
        """One line of printable text."""
        end = self.end or "broken off at the end of the job"
        if not self.to:
            return f"{self.target}: {end}"
        return f"{self.target} ({self.to}): {self.up} bytes up, {self.down} down, {end}"
