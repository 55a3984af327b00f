"""One run of one job, by a keeper that stands, in groups that are there.

Invariant: everything that was opened for it is closed, and what is said of it was observed from outside.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.verifier.jail.collect import Caps, Collected, collect
from services.verifier.jail.job import Job, Limits, Outcome
from services.verifier.jail.jobgroups import JobGroups
from services.verifier.jail.launcher import HANDED_MAX, SETUP_DEADLINE_S, Launcher
from services.verifier.jail.pipes import Pipes, submit
from services.verifier.jail.snapshot import Layer, Snapshot, SnapshotError, layer_of, stacked
from services.verifier.jail.storage import OWN_BYTES
from services.verifier.jail.supervise import Ending, Supervision
from services.verifier.jail.tree import Entry, compare
from services.verifier.jail.verdict import Evidence, judge, met

if TYPE_CHECKING:
    from services.verifier.network import Allow

# The walk after a run: a few more entries than the inode limit allows, and sparse files up to four times the disk.
READ_FACTOR = 4
NOTHING = Collected({}, complete=False, why="the job could not be set up")


@dataclass(frozen=True, slots=True)
class Turn:
    """What a run has of its slot: its number there, the outside user id, the machine's processors and what isolates it.

    `before` and `layers`: the working folder as it was laid out. `own_network`, `late`: see config.py, `request`.
    """

    number: int
    uid: int
    cpus: int
    isolation: str
    before: Mapping[bytes, Entry]
    layers: tuple[Layer, ...]
    own_network: bool
    late: bool


def run_once(job: Job, launcher: Launcher, groups: JobGroups, turn: Turn) -> tuple[Outcome, bool]:
    """What came of it, and whether it has to be run again in a network of its own (supervise.py, `Status`).

    Raises OSError: a fault of ours.
    """
    pipes = Pipes(job, turn.uid)
    handed: list[int] = []
    try:
        submit(launcher, job, turn.number, pipes, groups, own_network=turn.own_network, late=turn.late)
        watch = Supervision(launcher, turn.number, job.limits, pipes, groups, turn.cpus)
        connections: tuple[str, ...] = ()
        if job.network is None:
            ending = watch.run()
        else:
            ending, connections = with_proxy(launcher, turn.number, job.network, watch, handed)
        handed += launcher.handed(turn.number)
        upper = handed[0] if handed else -1
        evidence = Evidence(groups.oom_kills(), groups.refused_forks(), disk_full=full(upper))
        cause, detail = judge(ending, evidence, job.limits)
        found = collect(upper, caps(job.limits), keep=job.keep) if handed else NOTHING
    finally:
        pipes.close()
        for fd in handed:
            os.close(fd)
    diff = compare(turn.before, found.layer, complete=found.complete)
    same = diff.complete and not (diff.created or diff.changed or diff.deleted)
    snapshot, why = snapshot_of(turn.layers, found, same=same) if job.keep else (None, "")
    if why:
        detail = "; ".join(filter(None, [detail, f"no snapshot: {why}"]))
    outcome = Outcome(
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
        isolation=turn.isolation,
        detail=detail,
        met=met(ending, evidence),
    )
    return outcome, ending.status.disturbed


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
