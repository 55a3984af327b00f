"""From rounds of measurements to figures. Invariant: pure; a ratio is taken within each round, then the median over rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.runtime.measures import Figure, figure, percentile, ratio, short

__all__ = ["Cell", "Figure", "Round", "figure", "latency", "percentile", "short", "spread", "throughput"]


@dataclass(slots=True)
class Cell:
    """One system doing one case in one round: verdicts, wall and processor seconds, and the seconds of each verdict."""

    verdicts: int
    wall_s: float
    cpu_s: float
    took: list[float] = field(default_factory=list)

    @property
    def per_core_s(self) -> float:
        """Verdicts for a second of processor time."""
        return self.verdicts / self.cpu_s

    @property
    def per_s(self) -> float:
        """Verdicts a second."""
        return self.verdicts / self.wall_s


Round = Mapping[tuple[str, str], Cell]
"""(case, system) -> what was measured."""


def throughput(rounds: Sequence[Round], ours: str, same: Mapping[str, str]) -> dict[str, Figure]:
    """`<case>.per_core_s` and `.per_s` of our system with ratios to the peers, and `<case>.<peer>.per_core_s`.

    `same`: a case without peers of its own -> the case whose peers do the same work.
    """
    found: dict[str, Figure] = {}
    for case in dict.fromkeys(case for case, system in rounds[0] if system == ours):
        theirs = same.get(case, case)
        peers = [system for name, system in rounds[0] if name == theirs and system != ours]
        for measure, unit in (("per_core_s", "per core-second"), ("per_s", "per second")):
            own = [float(getattr(each[case, ours], measure)) for each in rounds]
            others = {
                peer: [float(getattr(each[theirs, peer], measure)) for each in rounds] for peer in peers
            }
            ratios = {peer: ratio(own, values) for peer, values in others.items()}
            found[f"{case}.{measure}"] = figure(own, unit, ratios)
            if theirs == case:
                found |= {f"{case}.{peer}.{measure}": figure(values, unit) for peer, values in others.items()}
    return found


def latency(rounds: Sequence[Round], ours: str) -> dict[str, Figure]:
    """`<case>.p50_ms` and `.p99_ms`: over all verdicts, with the range of the rounds' own."""
    found: dict[str, Figure] = {}
    for case in dict.fromkeys(case for case, system in rounds[0] if system == ours):
        lists = [each[case, ours].took for each in rounds]
        for name, share in (("p50", 0.50), ("p99", 0.99)):
            found[f"{case}.{name}_ms"] = spread(lists, share)
    return found


def spread(lists: Sequence[Sequence[float]], share: float) -> Figure:
    """A percentile of all seconds, in milliseconds; `min` and `max` are those of the single lists."""
    each = [1000 * percentile(values, share) for values in lists]
    whole = 1000 * percentile([value for values in lists for value in values], share)
    return Figure(value=short(whole), unit="ms", min=short(min(each)), max=short(max(each)), runs=len(each))
