"""A slot: the one place where jobs run, one at a time.

Invariant: whatever a job did, `run` returns an Outcome (our own failures as `infra`), leaves no process, cgroup or file
of it, and the next job finds the slot as the first did. A slot's name belongs to one process at a time, and taking a
name first removes what a crashed owner left.
"""

from __future__ import annotations

import errno
import os
import re
import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from services.verifier.jail import config
from services.verifier.jail.cgroups import SlotGroups
from services.verifier.jail.collect import Caps, Collected, collect
from services.verifier.jail.hierarchy import Tree as CgroupTree
from services.verifier.jail.job import Cause, JailUnavailable, Job, Limits, Outcome
from services.verifier.jail.jobgroups import JobGroups
from services.verifier.jail.launcher import HANDED_MAX, SETUP_DEADLINE_S, GoneError, Launcher, LaunchError
from services.verifier.jail.ownership import clear, free_lock, take_lock
from services.verifier.jail.policy import compiled
from services.verifier.jail.snapshot import Layer, Snapshot, SnapshotError, layer_of, stacked
from services.verifier.jail.storage import HOME, OWN_BYTES, Storage, place
from services.verifier.jail.streams import high
from services.verifier.jail.supervise import Ending, Pipes, Supervision, submit
from services.verifier.jail.tree import Entry, compare, from_files, overlay
from services.verifier.jail.verdict import Evidence, judge

if TYPE_CHECKING:
    from services.verifier.network import Allow

FIRST_UID = 100_000
UIDS_PER_SLOT = 10
NAME = re.compile(r"temper-[A-Za-z0-9._]+(?:-[A-Za-z0-9._]+)*-(\d{1,4})")
# The walk after a run: a few more entries than the inode limit allows, and sparse files up to four times the disk.
READ_FACTOR = 4
# The slot's own processes are made anew (10 ms) after this many jobs, and after every job that did not end by itself:
# no trace of such a job was ever found (tests/hostile runs all of them without this), so this is for what is not known.
JOBS_PER_LAUNCHER = 1000
RENEW_AFTER: frozenset[Cause] = frozenset({"wall", "cpu", "memory", "pids", "output", "disk", "infra"})
NOTHING = Collected({}, complete=False, why="the job could not be set up")


@dataclass(frozen=True, slots=True)
class Host:
    """What the probe found on this machine; `isolation` describes it in one line."""

    nsjail: Path
    keeper: Path
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
            path = config.write(self._storage)
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
            outcome = self._supervised(job, launcher, groups, before, layers, own_network=own_network)
            if outcome.cause not in self.renew_after:
                self._spare, groups = groups, None
        finally:
            if groups is not None:
                groups.remove()
        return outcome

    def _supervised(
        self,
        job: Job,
        launcher: Launcher,
        groups: JobGroups,
        before: dict[bytes, Entry],
        layers: tuple[Layer, ...],
        *,
        own_network: bool,
    ) -> Outcome:
        pipes = Pipes(job, self.uid)
        handed: list[int] = []
        try:
            submit(launcher, job, self._number, pipes, groups, own_network=own_network)
            watch = Supervision(launcher, self._number, job.limits, pipes, groups, self.host.cpus)
            connections: tuple[str, ...] = ()
            if job.network is None:
                ending = watch.run()
            else:
                ending, connections = with_proxy(launcher, self._number, job.network, watch, handed)
            self._disturbed = ending.status.disturbed
            handed += launcher.handed(self._number)
            upper = handed[0] if handed else -1
            evidence = Evidence(groups.oom_kills(), groups.refused_forks(), disk_full=full(upper))
            cause, detail = judge(ending, evidence, job.limits)
            found = collect(upper, caps(job.limits), keep=job.keep) if handed else NOTHING
        finally:
            pipes.close()
            for fd in handed:
                os.close(fd)
        diff = compare(before, found.layer, complete=found.complete)
        same = diff.complete and not (diff.created or diff.changed or diff.deleted)
        snapshot, why = snapshot_of(layers, found, same=same) if job.keep else (None, "")
        if why:
            detail = "; ".join(filter(None, [detail, f"no snapshot: {why}"]))
        return Outcome(
            cause=cause,
            exit_code=ending.status.exit_code,
            signal=ending.status.signal,
            wall_s=ending.wall_s,
            cpu_s=ending.cpu_s,
            peak_memory_bytes=groups.peak_memory(),
            peak_pids=groups.peak_pids() if launcher.groups.keeps_peak else watch.most_pids,
            stdout=pipes.stdout.content,
            stderr=pipes.stderr.content,
            stdout_truncated=pipes.stdout.truncated,
            stderr_truncated=pipes.stderr.truncated,
            stdout_dropped=pipes.stdout.dropped,
            stderr_dropped=pipes.stderr.dropped,
            report=pipes.report.content if pipes.report is not None else b"",
            diff=diff,
            survivors=ending.survivors,
            snapshot=snapshot,
            network=str(job.network or "none"),
            connections=connections,
            isolation=self.host.isolation,
            detail=detail,
        )

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


def with_proxy(
    launcher: Launcher, number: int, allow: Allow, watch: Supervision, handed: list[int]
) -> tuple[Ending, tuple[str, ...]]:
    """The ending and the log of a job that has a way out while it runs.

    Its init hands a listening socket over before the program starts; connections wait in the kernel until it is served.
    Raises OSError when the proxy fails.
    """
    from services.verifier.network import Proxy, ProxyError

    poller = select.poll()
    for channel in (launcher.hold, launcher.control):
        poller.register(channel.fileno(), select.POLLIN)
    poller.poll(SETUP_DEADLINE_S * 1000)
    handed += launcher.handed(number)
    if len(handed) < HANDED_MAX:
        return watch.run(), ()  # it failed before: the watch finds out how
    proxy = Proxy(socket.socket(fileno=handed.pop()), allow)
    try:
        proxy.start()
        try:
            ending = watch.run()
        finally:
            connections = proxy.stop()
    except ProxyError as error:
        raise OSError(str(error)) from error
    return ending, connections


def full(upper: int) -> bool:
    """Whether the bytes or inodes that the program may write are used up now; `upper` is -1 when it could not start."""
    if upper < 0:
        return False
    usage = os.fstatvfs(upper)
    return usage.f_bavail * usage.f_frsize <= OWN_BYTES or usage.f_favail == 0


def caps(limits: Limits) -> Caps:
    """Bounds of the walk after a run."""
    return Caps(limits.inodes + 64, limits.disk_bytes * READ_FACTOR)


def snapshot_of(
    layers: tuple[Layer, ...], found: Collected, *, same: bool = False
) -> tuple[Snapshot | None, str]:
    """The layers with what was found on top; None, and why, when that is not all or could not be laid out again.

    `same`: what was found changes nothing (a file that was only opened for writing): it is no layer then.
    """
    if not found.complete:
        return None, found.why
    if found.layer and not same:
        layers = (*layers, layer_of(found.layer))
    try:
        return stacked(layers), ""
    except SnapshotError as error:
        return None, str(error)
