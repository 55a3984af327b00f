"""The jail: run one command on untrusted input and report facts that it could not write itself.

`probe()` says whether this machine can; `Slot(name, root, host).run(Job(...))` gives an `Outcome`.
"""

from services.verifier.jail.job import (
    Cause,
    Change,
    Diff,
    FileEntry,
    Jail,
    JailUnavailable,
    Job,
    JobError,
    Limits,
    Outcome,
)
from services.verifier.jail.machine import probe
from services.verifier.jail.slot import Host, Slot
from services.verifier.jail.snapshot import Snapshot, SnapshotError

__all__ = [
    "Cause",
    "Change",
    "Diff",
    "FileEntry",
    "Host",
    "Jail",
    "JailUnavailable",
    "Job",
    "JobError",
    "Limits",
    "Outcome",
    "Slot",
    "Snapshot",
    "SnapshotError",
    "probe",
]
