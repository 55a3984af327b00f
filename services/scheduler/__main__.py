"""Start of the scheduler, or one of its commands. Invariant: no argument starts the service."""

from __future__ import annotations

import sys

from services.runtime import lifecycle
from services.scheduler import app, cli

if __name__ == "__main__":
    raise SystemExit(cli.main(sys.argv[1:]) if sys.argv[1:] else lifecycle.main("scheduler", app.run))
