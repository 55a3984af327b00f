"""What was done to the processes, as the log itself shows it. Invariant: counted from records, not from what a play intended.

A scenario names the figures that must not be 0 (`Scenario.proves`): a clock that was moved shows in the times that its process
wrote, a rebalance in what workers say of their partitions.
"""

from __future__ import annotations

from schemas.heartbeats import WorkerHeartbeat
from tests.chaos.suite.log import Log

DAY_S = 86_400.0


def evidence(log: Log) -> dict[str, float]:
    """Figures over all shards."""
    return {**_clocks(log), **_assignments(log)}


def _clocks(log: Log) -> dict[str, float]:
    """Records whose writer's clock was more than a day off, by the time that the Kafka client gave them, by kind of writer."""
    figures = dict.fromkeys(
        (f"{kind}_{way}" for kind in ("scheduler", "worker") for way in ("ahead", "behind")), 0.0
    )
    for records in log.parts.values():
        for record in records:
            off_s = record.envelope.occurred_at - record.timestamp_ms / 1000.0
            kind = record.envelope.producer.partition("-")[0]
            if abs(off_s) > DAY_S and kind in ("scheduler", "worker"):
                figures[f"{kind}_{'ahead' if off_s > 0.0 else 'behind'}"] += 1.0
    figures["workers_off"] = figures["worker_ahead"] + figures["worker_behind"]
    return figures


def _assignments(log: Log) -> dict[str, float]:
    """How often workers were given other partitions after their first, and how often a partition went to another process."""
    dealt: dict[tuple[str, int], float] = {}
    owners: dict[str, tuple[str, int]] = {}
    moved = 0
    for record in sorted(log.of("heartbeats"), key=lambda found: found.timestamp_ms):
        beat = record.event
        if not isinstance(beat, WorkerHeartbeat) or beat.service != "sampler":
            continue
        process = beat.worker, beat.pid
        dealt[process] = max(dealt.get(process, 0.0), beat.stats.get("rebalances", 0.0))
        for name in beat.offsets:
            moved += owners.get(name, process) != process
            owners[name] = process
    return {
        "rebalances": sum(max(0.0, times - 1.0) for times in dealt.values()),
        "partitions_moved": float(moved),
    }
