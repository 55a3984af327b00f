"""Start of the scheduler, or one of its commands. Invariant: no argument starts the service."""

from __future__ import annotations

import sys

from services.runtime.terminal import command


def main(argv: list[str]) -> int:
    """Run what `argv` asks for; returns the exit status."""
    if argv[:1] == ["bench"]:
        from services.scheduler.bench import main as bench

        return bench.main(argv[1:])
    from services.scheduler import app, cli

    if argv:
        return cli.main(argv)
    from services.runtime import lifecycle

    return lifecycle.main("scheduler", app.run)


if __name__ == "__main__":
    raise SystemExit(command(lambda: main(sys.argv[1:])))
