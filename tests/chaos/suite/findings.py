"""What an audit has found, and on how much it has looked. Invariant: a check that was made on nothing is a finding itself.

So is what a scenario says it has done and of which nothing is to be seen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from services.scheduler.state import State

MOST = 40
"""Findings that are kept."""
CHECKS: tuple[tuple[int, str], ...] = (
    (1, "entries balanced"),
    (1, "tasks accounted"),
    (1, "attempts ended"),
    (1, "ends observed"),
    (2, "effects decided"),
    (2, "results scored"),
    (2, "verdicts accounted"),
    (3, "ranges taken"),
    (4, "leases unexpired"),
    (4, "pools counted"),
    (5, "entries in order"),
    (5, "fields projected"),
    (6, "entries folded again"),
    (11, "states timed"),
)
"""What is checked: number of the invariant in docs/design.md, section 3, and what is counted."""


class Loss(NamedTuple):
    """A lease that ended with its worker: nobody renewed it, or the worker's process had ended."""

    lease: str
    worker: str
    """Who named it last."""
    pid: int
    """And from which process."""


class Audit(msgspec.Struct, kw_only=True):
    """What came of it."""

    findings: list[str] = []
    figures: dict[str, float] = {}
    use: list[tuple[float, int, str, int, int, bool]] = []
    """After each entry, by pool: time, shard, pool, slots leased, slots there are, whether a lease was given."""
    states: dict[str, State] = {}
    """Folded state by shard."""
    lost: list[Loss] = []
    """Leases that a worker had named and that were taken back because of its end."""
    checked: dict[str, int] = {}
    """How many things each check was made on."""

    def check(self, number: int, what: str, many: int = 1) -> None:
        """Count that an invariant was checked on so many things more."""
        if (number, what) not in CHECKS:
            raise KeyError(f"no check of invariant {number} is called {what!r}")
        name = named(number, what)
        self.checked[name] = self.checked.get(name, 0) + many

    def find(self, number: int, text: str) -> None:
        """Note that an invariant does not hold."""
        if len(self.findings) < MOST:
            self.findings.append(f"invariant {number}: {text}")


def named(number: int, what: str) -> str:
    """How a check is called in figures."""
    return f"checked_{number}_{what}".replace(" ", "_")


def unchecked(parts: list[Audit], *, projected: bool = True) -> list[str]:
    """Checks that none of the audits made on anything; `projected`: a projection was there to be compared."""
    return [
        f"invariant {number}: checked on nothing ({what})"
        for number, what in CHECKS
        if (projected or what != "fields projected")
        and not any(part.checked.get(named(number, what)) for part in parts)
    ]


def unproven(wanted: Iterable[str], figures: Mapping[str, float]) -> list[str]:
    """Effects that a scenario says it had and of which a run shows nothing."""
    return [
        f"no effect: {name} is 0 in a run that was to show it" for name in wanted if not figures.get(name)
    ]
