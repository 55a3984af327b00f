"""How many slots a machine holds. Invariant: at least one; never more than cores, nor than memory for the largest job allows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from schemas.cards import Card
from services.verifier.jail.hierarchy import V2, Mount, mounts, own_path

WORKER_MIB = 160
"""A worker with the libraries of its families loaded."""
RESERVE = 0.8
"""Share of the available memory that slots may take together."""
MIB = 1 << 20


def fitting(cores: int, available_mib: float, slot_mib: float) -> int:
    """Slots for `cores` and memory, each slot taking `slot_mib` at most."""
    return max(1, min(cores, int(RESERVE * available_mib / max(slot_mib, 1.0))))


def slots(wanted: int, cards: Iterable[Card]) -> int:
    """`wanted`, or for 0 what this machine holds: each slot a worker and a job of the largest limits of the cards.

    What a job writes lies in memory too, so its disk limit counts beside its memory limit.
    """
    if wanted:
        return wanted
    largest = max((card.limits.memory_mib + card.limits.disk_mib for card in cards), default=0)
    return fitting(cores(), available_mib(), WORKER_MIB + largest)


def cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its cgroup."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota()
    return max(1, min(allowed, int(quota))) if quota else allowed


def available_mib() -> float:
    """Memory that can still be had: the machine's, or less where the cgroup has a limit."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:")
    for mount, folder in _folders("memory"):
        names = ("memory.max", "memory.current")
        if mount.version != V2:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        limit, used = (_number(folder / name) for name in names)
        if limit is not None and used is not None:
            free = min(free, max(0, limit - used))
    return free / MIB


def _quota() -> float:
    """CPUs that the cgroup allows; 0 without a quota."""
    for mount, folder in _folders("cpu"):
        if mount.version == V2:
            words = _text(folder / "cpu.max").split()
        else:
            words = [_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):  # noqa: PLR2004 (quota, period)
            return int(words[0]) / int(words[1])
    return 0.0


def _folders(controller: str) -> list[tuple[Mount, Path]]:
    found = mounts(Path("/proc/self/mountinfo").read_text())
    own = Path("/proc/self/cgroup").read_text()
    return [
        (each, own_path(each, own)) for each in found if each.version == V2 or controller in each.controllers
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # the root group has no limits, and a controller may be elsewhere


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
