"""Figures of a benchmark. Invariant: pure; a ratio is taken within each round, then the median over the rounds."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Median, least and greatest over `runs` rounds; `ratio`: peer -> ours divided by the peer's."""

    value: float
    unit: str
    min: float
    max: float
    runs: int
    ratio: dict[str, float] = {}


def short(value: float) -> float:
    """Four significant digits; more would be noise."""
    return float(f"{value:.4g}")


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the least value that `share` of all do not exceed. Raises ValueError if there is none."""
    if not values:
        raise ValueError("a percentile of nothing")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of ours divided by theirs, round by round."""
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


def figure(values: Sequence[float], unit: str, ratios: Mapping[str, float] | None = None) -> Figure:
    """Median with range of one value a round; `ratios`: peer -> ours divided by the peer's."""
    return Figure(
        value=short(statistics.median(values)),
        unit=unit,
        min=short(min(values)),
        max=short(max(values)),
        runs=len(values),
        ratio={peer: short(value) for peer, value in (ratios or {}).items()},
    )


def describe_machine(**more: Any) -> dict[str, Any]:
    """What figures depend on."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    } | more


def positive(text: str) -> int:
    """A whole number of at least 1. Raises ValueError."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value
