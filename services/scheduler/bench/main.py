"""The scheduler's benchmarks as commands. Invariant: one document on standard output, progress and faults on standard error."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from services.runtime.errors import Unavailable, one_line
from services.runtime.measures import describe_machine, positive
from services.scheduler.bench import pipeline, systems

FAILED = 3


def main(argv: Sequence[str]) -> int:
    """`bench scheduler [...]` or `bench pipeline [...]`; exit status as all commands have it."""
    parser = argparse.ArgumentParser(prog="temper bench", allow_abbrev=False)
    names = parser.add_subparsers(dest="name", required=True)
    core = names.add_parser("scheduler", allow_abbrev=False, help="decisions in the process, without a log")
    core.add_argument("--tasks", type=positive, default=1_000_000, help="ready tasks (default 1000000)")
    core.add_argument("--rounds", type=positive, default=3, help="rounds that count (default 3)")
    core.add_argument(
        "--variant",
        action="append",
        choices=("plain", "cohorts", "random"),
        help="backlogs to measure, repeatable (default all)",
    )
    through = names.add_parser("pipeline", allow_abbrev=False, help="tasks through the log")
    through.add_argument("--tasks", type=positive, default=10_000, help="backlog (default 10000)")
    through.add_argument(
        "--peer-tasks", type=positive, help="backlog of a peer (default: the same, 20000 at most)"
    )
    through.add_argument("--rounds", type=positive, default=5, help="rounds that count (default 5)")
    through.add_argument(
        "--parallel",
        type=positive,
        default=os.cpu_count() or 1,
        help="worker processes of a peer (default: cores)",
    )
    through.add_argument(
        "--window", type=positive, default=512, help="leases, or tasks fetched ahead (default 512)"
    )
    through.add_argument("--no-peers", action="store_true", help="only our own figures")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave nothing then either
    try:
        document = _core(arguments) if arguments.name == "scheduler" else _pipeline(arguments)
    except Unavailable as error:
        sys.stderr.write(f"temper bench {arguments.name}: {one_line(error)}\n")
        return FAILED
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    return 0


def _core(arguments: argparse.Namespace) -> dict[str, Any]:
    core = importlib.import_module("services.scheduler.bench.core")
    found = core.run(
        tasks=arguments.tasks, rounds=arguments.rounds, variants=arguments.variant or core.VARIANTS
    )
    return {"bench": "scheduler", "machine": describe_machine(), "figures": msgspec.to_builtins(found)}


def _pipeline(arguments: argparse.Namespace) -> dict[str, Any]:
    absent = systems.absent()
    if absent and not arguments.no_peers:
        raise Unavailable(
            f"{', '.join(absent)} to compare with is not installed: `uv pip install -r requirements/bench.txt`, "
            "or give --no-peers"
        )
    plan = pipeline.Plan(
        tasks=arguments.tasks,
        peer_tasks=arguments.peer_tasks or min(arguments.tasks, 20_000),
        rounds=arguments.rounds,
        parallel=arguments.parallel,
        window=arguments.window,
        peers=() if arguments.no_peers else systems.PEERS,
    )
    return pipeline.run(plan)
