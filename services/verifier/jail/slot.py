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
from services.verifier.jail.cgroups import JobCgroups
from services.verifier.jail.collect import Caps, Collected, collect
from services.verifier.jail.hierarchy import Tree as CgroupTree
from services.verifier.jail.job import JailUnavailable, Job, Outcome
from services.verifier.jail.ownership import clear, free_lock, take_lock
from services.verifier.jail.snapshot import Layer, Snapshot, layer_of
from services.verifier.jail.storage import HOME, Storage, place
from services.verifier.jail.streams import high
from services.verifier.jail.supervise import Pipes, Supervision, spawn
from services.verifier.jail.tree import Entry, compare, from_files, overlay
from services.verifier.jail.verdict import Evidence, judge

FIRST_UID = 100_000
UIDS_PER_SLOT = 10
NAME = re.compile(r"temper-[A-Za-z0-9._]+(?:-[A-Za-z0-9._]+)*-(\d{1,4})")
# The walk after a run: a few more entries than the inode limit allows, and sparse files up to four times the disk.
READ_FACTOR = 4
MAX_LAYERS = 16


@dataclass(frozen=True, slots=True)
class Host:
    """What the probe found on this machine; `isolation` describes it in one line."""

    nsjail: Path
    init: Path
    launch: Path
    trees: tuple[CgroupTree, ...]
    cpus: int
    isolation: str
    first_uid: int = FIRST_UID


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
        self._lock_path = HOME / f"{name}.lock"
        self._lock = take_lock(self._lock_path, wait_s)
        self._null = -1
        base = place(root, name)
        try:
            clear(name, host.trees, [base])
            self._storage = Storage(base, self.uid, host.init)
            path = config.write(self._storage)
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
        groups = JobCgroups(self.host.trees, self.name)
        try:
            try:
                self._storage.reset(job.limits)
                self._storage.lay_out(self._storage.lower, before)
                self._storage.lay_out(self._storage.trusted, from_files(job.trusted))
                groups.create(job.limits)
                outcome = self._supervised(job, groups, before, layers)
            finally:
                groups.remove()
                self._storage.drop()
        except (OSError, ValueError) as error:
            return Outcome(
                cause="infra", isolation=self.host.isolation, detail=f"{type(error).__name__}: {error}"
            )
        return outcome

    def _supervised(
        self, job: Job, groups: JobCgroups, before: dict[bytes, Entry], layers: tuple[Layer, ...]
    ) -> Outcome:
        pipes = Pipes(job)
        try:
            procs = groups.open_procs()
            try:
                pid = spawn(self._command, pipes, procs, self._null)
            finally:
                for fd in procs:
                    os.close(fd)
            pipes.close_far()
            ending = Supervision(job.limits, pipes, groups, self.host.cpus).run(pid)
        finally:
            pipes.close()
        evidence = Evidence(groups.oom_kills(), groups.refused_forks(), self._storage.full())
        cause, detail = judge(ending, evidence, job.limits)
        caps = Caps(job.limits.inodes + 64, job.limits.disk_bytes * READ_FACTOR)
        found = collect(self._storage.upper, caps, keep=job.keep)
        diff = compare(before, found.layer, complete=found.complete)
        snapshot = self._snapshot(job, layers, found)
        if job.keep and snapshot is None:
            detail = "; ".join(filter(None, [detail, "no snapshot: more was written than can be collected"]))
        return Outcome(
            cause=cause,
            exit_code=ending.status.exit_code,
            signal=ending.status.signal,
            wall_s=ending.wall_s,
            cpu_s=ending.cpu_s,
            peak_memory_bytes=groups.peak_memory(),
            stdout=pipes.stdout.content,
            stderr=pipes.stderr.content,
            stdout_truncated=pipes.stdout.truncated,
            stderr_truncated=pipes.stderr.truncated,
            report=pipes.report.content if pipes.report is not None else b"",
            diff=diff,
            survivors=ending.survivors,
            snapshot=snapshot,
            isolation=self.host.isolation,
            detail=detail,
        )

    def _snapshot(self, job: Job, layers: tuple[Layer, ...], found: Collected) -> Snapshot | None:
        if not job.keep or not found.complete:
            return None
        if found.layer:
            layers = (*layers, layer_of(found.layer))
        if len(layers) > MAX_LAYERS:
            layers = (Layer(overlay(layer.tree for layer in layers)),)
        return Snapshot(layers)

    def close(self) -> None:
        """Unmount and remove all that the slot owns. Raises OSError. Closing twice is fine."""
        if self._lock < 0:
            return
        try:
            self._storage.close()
        finally:
            os.close(self._null)
            free_lock(self._lock, self._lock_path)
            self._lock = self._null = -1
