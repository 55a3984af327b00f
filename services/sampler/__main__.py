"""Start the sampler: `python -m services.sampler`."""

from __future__ import annotations

import os

# Read by OpenMP when torch loads: waiting threads must sleep, for the cores are shared with the other services.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from services.runtime import lifecycle
from services.sampler import app

if __name__ == "__main__":
    raise SystemExit(lifecycle.main("sampler", app.run))
