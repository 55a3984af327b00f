"""What the verifier takes from its surroundings. Invariant: read once at the start; nothing here decides a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.run import Verifier
from services.runtime.settings import Process
from services.verifier.jail.storage import HOME

SLOTS = HOME
"""Folder of the slots: where the jail looks for what a crashed owner left."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`slots`: folder of the jail's slots; `verifier`: the run's section; `worker`: this replica's name."""

    worker: str
    verifier: Verifier
    slots: Path = SLOTS


def settings(process: Process) -> Settings:
    """The settings of a service process."""
    return Settings(worker=process.worker, verifier=process.config.verifier)
