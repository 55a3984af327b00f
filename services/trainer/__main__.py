"""Start the trainer: `python -m services.trainer`."""

from __future__ import annotations

import os

# Read by OpenMP when torch loads: waiting threads must sleep. On cores shared with other services
# spinning ones were measured to burn ten times the CPU of a step.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from services.runtime import lifecycle
from services.trainer import app

if __name__ == "__main__":
    raise SystemExit(lifecycle.main("trainer", app.run))
