"""What the verifier takes from its surroundings. Invariant: read once at the start; nothing here decides a verdict."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from schemas.run import Verifier
from services.runtime.settings import Process

SYSTEM = Path("/run")


@dataclass(frozen=True, slots=True)
class Settings:
    """`slots_root`: folder of the jail's slots; `verifier`: the run's section; `worker`: this replica's name."""

    worker: str
    slots_root: Path
    verifier: Verifier


def slots_root() -> Path:
    """TEMPER_SLOTS, else a folder below /run, which is emptied at boot, else below the temporary folder."""
    given = os.environ.get("TEMPER_SLOTS")
    if given:
        return Path(given)
    base = SYSTEM if os.access(SYSTEM, os.W_OK) else Path(tempfile.gettempdir())
    return base / "temper-slots"


def settings(process: Process) -> Settings:
    """The settings of a service process."""
    return Settings(worker=process.worker, slots_root=slots_root(), verifier=process.config.verifier)
