"""Stops judging a domain that only gives `infra`.

Invariant: pure, time is an argument; one domain's state never touches another's; no domain stays shut without end.

Closed: all is judged. After `threshold` infra verdicts in a row: open, nothing is judged for a pause, and answers wait
(gate.py) or get an `infra` verdict that names the last cause; the scheduler tries those again within its budget. After the
pause: half open, one answer is judged as a probe. A good verdict closes the breaker; a bad one opens it again for twice as long,
up to `pause_max_s`. A probe that says nothing in its time counts as lost, and another is let through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GROWTH = 2.0
Change = Literal["", "opened", "closed"]


@dataclass(slots=True)
class _Domain:
    failures: int = 0
    reason: str = ""
    pause_s: float = 0.0
    """0 while closed."""
    until: float = 0.0
    """Open until then; afterwards half open."""
    probing: bool = False


class Breaker:
    """One breaker a domain; `threshold` 0 never opens. Times in seconds on any clock that does not go back."""

    def __init__(self, threshold: int, pause_s: float, pause_max_s: float) -> None:
        self._threshold, self._pause_s, self._pause_max_s = threshold, pause_s, pause_max_s
        self._domains: dict[str, _Domain] = {}

    @property
    def open_count(self) -> int:
        """Domains of which nothing, or only a probe, is judged."""
        return sum(state.pause_s > 0.0 for state in self._domains.values())

    def open(self, domain: str) -> bool:
        """Whether nothing, or only a probe, of the domain is judged."""
        state = self._domains.get(domain)
        return state is not None and state.pause_s > 0.0

    def until(self, domain: str) -> float:
        """When the next probe is let through; the past for a closed one."""
        state = self._domains.get(domain)
        return state.until if state is not None and state.pause_s else float("-inf")

    def shut(self, domain: str, now: float) -> str:
        """Why an answer of the domain would not be judged now; empty if it would. Changes nothing."""
        state = self._domains.get(domain)
        if state is None or not state.pause_s or now >= state.until:
            return ""
        what = (
            "is being tried again" if state.probing else f"will be tried again in {state.until - now:.0f} s"
        )
        return f"domain {domain} is not judged after {state.failures} faults in a row and {what}; the last: {state.reason}"

    def refusal(self, domain: str, now: float, probe_s: float) -> str:
        """As `shut`, for an answer about to be judged: one let through when half open has `probe_s` to say something."""
        said = self.shut(domain, now)
        state = self._domains.get(domain)
        if not said and state is not None and state.pause_s:
            state.until, state.probing = now + probe_s, True
        return said

    def note(self, domain: str, fault: str, now: float) -> Change:
        """What judging an answer gave: `fault` empty, or the reason of an infra verdict. Says what changed by it."""
        state = self._domains.setdefault(domain, _Domain())
        if not fault:
            was_open = state.pause_s > 0.0
            self._domains[domain] = _Domain()
            return "closed" if was_open else ""
        state.failures, state.reason = state.failures + 1, fault
        if not self._threshold or state.failures < self._threshold:
            return ""
        if state.pause_s and not state.probing:
            return ""  # was being judged when the breaker opened
        state.pause_s = min(state.pause_s * GROWTH or self._pause_s, self._pause_max_s)
        state.until, state.probing = now + state.pause_s, False
        return "opened"
