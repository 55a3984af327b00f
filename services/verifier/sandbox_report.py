"""What `temper sandbox run` prints about a run: one JSON document, or a few lines for people.

Invariant: what the program wrote is shown as data; nothing of it can look like a line of ours in the JSON document.
"""

from __future__ import annotations

from typing import Any

from services.verifier.jail import Outcome
from services.verifier.jail.job import Change


def text(data: bytes) -> str:
    """Bytes as text; what is not UTF-8 is replaced."""
    return data.decode("utf-8", "replace")


def fields(change: Change) -> dict[str, Any]:
    """What is promised of one path."""
    return {name: getattr(change, name) for name in ("path", "type", "mode", "size", "digest")}


def document(outcome: Outcome, snapshot_id: str | None) -> dict[str, Any]:
    """The fields that the design promises for `sandbox run --json`."""
    return {
        "cause": outcome.cause,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "wall_s": outcome.wall_s,
        "cpu_s": outcome.cpu_s,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "peak_pids": outcome.peak_pids,
        "stdout": text(outcome.stdout),
        "stderr": text(outcome.stderr),
        "stdout_truncated": outcome.stdout_truncated,
        "stderr_truncated": outcome.stderr_truncated,
        "diff": {
            "created": [fields(change) for change in outcome.diff.created],
            "changed": [fields(change) for change in outcome.diff.changed],
            "deleted": [fields(change) for change in outcome.diff.deleted],
        },
        "survivors": outcome.survivors,
        "snapshot": snapshot_id,
        "network": outcome.network,
        "connections": list(outcome.connections),
        "isolation": outcome.isolation,
        "detail": outcome.detail,
    }


def human(outcome: Outcome, snapshot_id: str | None) -> str:
    """The same for people: what the program printed, then a few lines about the run."""
    how = {"exit": f"exit {outcome.exit_code}", "signal": f"signal {outcome.signal}"}.get(
        outcome.cause, outcome.cause
    )
    used = f"peak {outcome.peak_memory_bytes / 2**20:.1f} MiB, {outcome.peak_pids} processes and threads"
    lines = [
        f"{how}{': ' + outcome.detail if outcome.detail else ''}",
        f"wall {outcome.wall_s:.3f} s, CPU {outcome.cpu_s:.3f} s, {used}",
        *([f"network {outcome.network}"] if outcome.network != "none" else []),
        *(f"* {line}" for line in outcome.connections),
    ]
    for label, changes in (
        ("+", outcome.diff.created),
        ("~", outcome.diff.changed),
        ("-", outcome.diff.deleted),
    ):
        lines += [f"{label} {change.path!r} ({change.type}, {change.size} bytes)" for change in changes]
    if snapshot_id is not None:
        lines.append(f"snapshot {snapshot_id}")
    shown = []
    for name, data, cut in (
        ("stdout", outcome.stdout, outcome.stdout_truncated),
        ("stderr", outcome.stderr, outcome.stderr_truncated),
    ):
        if data:
            shown.append(f"--- {name}{' (cut at the limit)' if cut else ''}\n{text(data).rstrip()}\n")
    return "".join(shown) + "--- run\n" + "\n".join(lines) + "\n"
