"""`temper bench NAME`: run a service's benchmark and show its figures.

Invariant: with --json the benchmark's document passes through unchanged.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from services.console.errors import OUTSIDE, WRONG_USE, ConsoleError

BENCHES = {
    "verifier": ("verifier", ()),
    "scheduler": ("scheduler", ("scheduler",)),
    "pipeline": ("scheduler", ("pipeline",)),
}
"""Benchmark -> the service that does it, and what its `bench` is told."""


def run(name: str, arguments: Sequence[str], *, as_json: bool) -> int:
    """Run the benchmark `name`; its progress goes to standard error. Returns the exit status. Raises ConsoleError."""
    if name not in BENCHES:
        raise ConsoleError(
            f"bench {name}: there is no such benchmark; choose one of {', '.join(BENCHES)}", WRONG_USE
        )
    service, words = BENCHES[name]
    process = subprocess.Popen(
        [sys.executable, "-m", f"services.{service}", "bench", *words, *arguments], stdout=subprocess.PIPE
    )
    try:
        output, _ = process.communicate()  # the benchmark bounds its own waits
    except KeyboardInterrupt:
        process.communicate()  # it was interrupted as well, and removes what it made
        return 130
    if process.returncode or not output.strip():
        return process.returncode or OUTSIDE
    if as_json:
        sys.stdout.buffer.write(output)
        return 0
    try:
        Console().print(*tables(msgspec.json.decode(output)))
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise ConsoleError(f"bench {name}: its document is not as agreed: {error}", OUTSIDE) from error
    return 0


def tables(document: dict[str, Any]) -> list[Table]:
    """The figures and the machine of a benchmark's document."""
    figures = Table(title=f"bench {document['bench']}", title_justify="left")
    figures.add_column("figure", no_wrap=True)
    for heading in ("median", "least", "greatest"):
        figures.add_column(heading, justify="right")
    figures.add_column("unit")
    figures.add_column("times the peer's")
    group = ""
    for name, figure in document["figures"].items():
        if (head := name.partition(".")[0]) != group:
            if group:
                figures.add_section()
            group = head
        ratios = ", ".join(f"{peer} {value:g}" for peer, value in figure["ratio"].items())
        values = (f"{figure[key]:g}" for key in ("value", "min", "max"))
        figures.add_row(name, *values, figure["unit"], ratios)
    machine = Table(title="machine", title_justify="left", show_header=False)
    for key, value in document["machine"].items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        machine.add_row(key, shown or "none")
    return [figures, machine]
