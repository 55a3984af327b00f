"""The `temper` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from services.console.cli import run_command
from services.runtime.terminal import command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    return command(lambda: run_command(list(sys.argv[1:] if argv is None else argv)))


if __name__ == "__main__":
    raise SystemExit(main())
