"""The long form: every scenario over its seeds, one after the other, and a report. Exit status 1 if anything did not hold."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run what `argv` asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.suite", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each scenario (default 20)")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--only", default="", help="scenarios, with commas between")
    parser.add_argument("--report", type=Path, default=Path("chaos-report.html"))
    parser.add_argument(
        "--short", action="store_true", help="as many tasks and as long waits as in the short form"
    )
    chosen = parser.parse_args(argv)
    if not chosen.short:
        os.environ.setdefault("TEMPER_CHAOS", "long")
    from tests.chaos.suite import report
    from tests.chaos.suite.run import once
    from tests.chaos.suite.scenarios import SCENARIOS

    # Brokers that are killed on purpose are not worth a line a second.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    names = [name for name in chosen.only.split(",") if name]
    known = {scenario.name for scenario in SCENARIOS}
    if unknown := set(names) - known:
        sys.stderr.write(f"chaos: no scenario {min(unknown)!r}; there are {', '.join(sorted(known))}\n")
        return 2
    about = {scenario.name: scenario.about for scenario in SCENARIOS}
    outcomes = []
    began = time.monotonic()
    for scenario in SCENARIOS:
        if names and scenario.name not in names:
            continue
        for seed in range(chosen.first, chosen.first + min(chosen.seeds, scenario.seeds)):
            with tempfile.TemporaryDirectory(prefix="temper-chaos-", ignore_cleanup_errors=True) as folder:
                outcome = asyncio.run(once(scenario, seed, Path(folder), None))
            outcomes.append(outcome)
            word = "held" if outcome.good else "FAILED"
            _say(f"{scenario.name} {seed}: {word} in {outcome.seconds:.1f} s")
            for line in (*outcome.findings, outcome.error):
                if line:
                    _say(f"  {line[:500]}")
            # After every run: an interrupted campaign has its report as well.
            report.write(chosen.report, outcomes, about, time.monotonic() - began)
    _say(f"report: {chosen.report}")
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
