"""A slot: the one place where jobs run, one at a time.

Invariant: whatever a job did, `run` returns an Outcome (our own failures as `infra`), leaves no process, cgroup or file
of it, and the next job finds the slot as the first did. A slot's name belongs to one process at a time, and taking a
name first removes what a crashed owner left.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from services.verifier.jail import config
from services.verifier.jail.cgroups import SlotGroups
from services.verifier.jail.hierarchy import Tree as CgroupTree
from services.verifier.jail.job import Cause, JailUnavailable, Job, Outcome
from services.verifier.jail.jobgroups import JobGroups
from services.verifier.jail.launcher import GoneError, Launcher, LaunchError
from services.verifier.jail.once import Turn, run_once
from services.verifier.jail.ownership import clear, free_lock, take_lock
from services.verifier.jail.policy import compiled
from services.verifier.jail.snapshot import Layer
from services.verifier.jail.storage import HOME, Storage, place
from services.verifier.jail.streams import high
from services.verifier.jail.tree import Entry, from_files, overlay

FIRST_UID = 100_000
UIDS_PER_SLOT = 10
NAME = re.compile(r"temper-[A-Za-z0-9._]+(?:-[A-Za-z0-9._]+)*-(\d{1,4})")
# The slot's own processes are made anew (10 ms) after this many jobs, and after every job that did not end by itself:
# no trace of such a job was ever found (tests/hostile runs all of them without this), so this is for what is not known.
JOBS_PER_LAUNCHER = 1000
RENEW_AFTER: frozenset[Cause] = frozenset({"wall", "cpu", "memory", "pids", "output", "disk", "infra"})


@dataclass(frozen=True, slots=True)
class Host:
    """What the probe found on this machine; `isolation` describes it in one line, `late` is explained in config.py, `request`."""

    nsjail: Path
    keeper: Path
    launch: Path
    trees: tuple[CgroupTree, ...]
    cpus: int
    isolation: str
    first_uid: int = FIRST_UID
    late: bool = False


class Slot:
    """One slot, named `temper-<run>-<n>`; n picks its outside user id. Not for use by two threads at once."""

    def __init__(self, name: str, root: Path, host: Host, *, wait_s: float = 2.0) -> None:
        """Take the name, for at most `wait_s` seconds, and make the slot's folders under `root`.

        Raises JailUnavailable: the name is not a slot's or is in use, or there can be no folders or mounts.
        """
        match = NAME.fullmatch(name)
        if match is None:
            raise JailUnavailable(f"slot name {name!r}: it must be temper-<run>-<number>")
        self.name, self.host = name, host
        self.uid = host.first_uid + int(match[1]) * UIDS_PER_SLOT
        self.renew_after, self.jobs_per_launcher = RENEW_AFTER, JOBS_PER_LAUNCHER
        self._launcher: Launcher | None = None
        self._spare: JobGroups | None = None  # of a job that has ended well
        self._number = 0
        # Of the last run: see supervise.py, `Status`; and whether the keeper never came to know of it.
        self._disturbed = self._unheard = False
        self._lock_path = HOME / f"{name}.lock"
        self._lock = take_lock(self._lock_path, wait_s)
        self._null = -1
        base = place(root, name)
        try:
            clear(name, host.trees, [base])
            self._storage = Storage(base, self.uid, host.keeper)
            path = config.write(self._storage, late=host.late)
            self._filter = compiled()
            self._null = high(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            with suppress(OSError):  # the first error is the one to tell
                clear(name, host.trees, [base])
            free_lock(self._lock, self._lock_path)
            remedy = (
                ": mounting is not permitted; run as root with CAP_SYS_ADMIN (docs/sandbox.md names what a container needs)"
                if error.errno in (errno.EPERM, errno.EACCES)
                else ""
            )
            raise JailUnavailable(f"slot {name} cannot be made under {root}: {error}{remedy}") from error
        nsjail = os.fspath(host.nsjail)
        count, parent = str(len(host.trees)), str(os.getpid())
        self._command = [os.fspath(host.launch), count, parent, nsjail, "--config", os.fspath(path)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: Job) -> Outcome:
        """Run one job to its end. Never raises for what the program did; our own faults come back as `infra`."""
        layers = job.base.layers if job.base is not None else ()
        before: dict[bytes, Entry] = dict(job.base.tree) if job.base is not None else {}
        if job.files:
            given = Layer(from_files(job.files, before))
            layers = (*layers, given)
            before = overlay([before, given.tree])
        outcome = self._once(job, before, layers)
        if self._unheard:  # its processes were killed from outside while nothing ran
            outcome = self._once(job, before, layers)
        if self._disturbed:
            outcome = self._once(job, before, layers, own_network=True)
        return outcome

    def _once(
        self,
        job: Job,
        before: dict[bytes, Entry],
        layers: tuple[Layer, ...],
        *,
        own_network: bool = False,
    ) -> Outcome:
        self._disturbed = self._unheard = False
        self._number += 1
        try:
            launcher = self._started()
            self._storage.lay_out(self._storage.lower, before, checked=job.base is not None)
            self._storage.lay_out(self._storage.trusted, from_files(job.trusted))
            self._storage.seal(sealed=job.sealed)
            outcome = self._grouped(job, launcher, before, layers, own_network=own_network)
        except (OSError, ValueError) as error:
            self._unheard = isinstance(error, GoneError)
            # That the set-up failed says itself what it is.
            kind = "" if isinstance(error, LaunchError) else f"{type(error).__name__}: "
            outcome = self._infra(f"{kind}{error}")
        if outcome.cause in self.renew_after or self._number % self.jobs_per_launcher == 0:
            try:
                self._stop()
            except OSError as error:
                outcome = self._infra(f"the slot's own processes cannot be ended: {error}")
        return outcome

    def _infra(self, detail: str) -> Outcome:
        return Outcome(cause="infra", isolation=self.host.isolation, detail=detail)

    def _started(self) -> Launcher:
        """The slot's own processes, made now if they are not there. Raises OSError."""
        if self._launcher is not None and self._launcher.ended():
            self._stop()  # killed from outside while nothing ran
        if self._launcher is None:
            groups = SlotGroups(self.host.trees, self.name)
            self._launcher = Launcher(self._command, groups, self._null, self._filter)
        return self._launcher

    def _stop(self) -> None:
        if self._spare is not None:
            groups, self._spare = self._spare, None
            groups.remove()
        if self._launcher is not None:
            launcher, self._launcher = self._launcher, None
            launcher.stop()

    def _grouped(
        self,
        job: Job,
        launcher: Launcher,
        before: dict[bytes, Entry],
        layers: tuple[Layer, ...],
        *,
        own_network: bool,
    ) -> Outcome:
        """Run in groups that are new, or as new."""
        groups, self._spare = self._spare, None
        if groups is not None and not groups.as_new(job.limits):
            groups.remove()
            groups = None
        try:
            if groups is None:
                groups = JobGroups(self.host.trees, self.name, self._number)
                groups.create(job.limits)
            host, number = self.host, self._number
            turn = Turn(number, self.uid, host.cpus, host.isolation, before, layers, own_network, host.late)
            outcome, self._disturbed = run_once(job, launcher, groups, turn)
            if outcome.cause not in self.renew_after:
                self._spare, groups = groups, None
        finally:
            if groups is not None:
                groups.remove()
        return outcome

    def close(self) -> None:
        """End, unmount and remove all that the slot owns. Raises OSError. Closing twice is fine."""
        if self._lock < 0:
            return
        try:
            try:
                self._stop()
            finally:
                self._storage.close()
        finally:
            os.close(self._null)
            free_lock(self._lock, self._lock_path)
            self._lock = self._null = -1
