"""Run one prepared jail to its end and say what happened.

Invariant: the supervisor's own clock and counters decide. It kills the whole cgroup, never one process; it waits for
nothing without a deadline; and when `supervise` returns, every process of the job is dead and reaped.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from services.verifier.jail import config
from services.verifier.jail.cgroups import JobCgroups
from services.verifier.jail.job import Job, Limits
from services.verifier.jail.streams import Inflow, Outflow, high

# Making the namespaces takes milliseconds; on a machine this slow nothing that we measure would be worth anything.
SETUP_DEADLINE_S = 20.0
MIN_CPU_POLL_S = 0.005
STATUS_CAP = 4096
LOG_CAP = 16_384
# A program may write this many times its cap, of which we keep one, before it is killed for it.
FLOOD_FACTOR = 4

KillReason = Literal["", "wall", "cpu", "output", "setup"]


@dataclass(slots=True)
class Status:
    """What the init said. Times are CLOCK_MONOTONIC seconds."""

    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    exec_errno: int | None = None


def parse_status(text: bytes) -> Status:
    """Parse the init's lines (init.c); an unfinished or unknown line is left out."""
    status = Status()
    for line in text.split(b"\n")[:-1]:
        match line.split():
            case [b"start", at]:
                status.started = int(at) / 1e9
            case [b"noexec", number, _]:
                status.exec_errno = int(number)
            case [b"exit", code, at]:
                status.exit_code, status.ended = int(code), int(at) / 1e9
            case [b"signal", number, at]:
                status.signal, status.ended = int(number), int(at) / 1e9
    return status


@dataclass(slots=True)
class Ending:
    """All that was observed of one run; `survivors` is 0 unless the kernel failed to kill."""

    killed: KillReason
    status: Status
    wall_s: float
    cpu_s: float
    survivors: int
    log: str


class Pipes:
    """The descriptors of one job, on both sides."""

    def __init__(self, job: Job) -> None:
        self.opened: list[Inflow | Outflow] = []
        self.memory_file = -1
        try:
            cap = job.limits.output_bytes
            self.stdout, self.stderr = self._inflow(cap), self._inflow(cap)
            self.status, self.log = self._inflow(STATUS_CAP), self._inflow(LOG_CAP)
            self.report = self._inflow(cap) if job.report else None
            self.stdin = Outflow(job.stdin)
            self.opened.append(self.stdin)
            self.memory_file = high(os.memfd_create("job", os.MFD_CLOEXEC))
            data = memoryview(config.job_bytes(job))
            while data:
                data = data[os.write(self.memory_file, data) :]
        except BaseException:
            self.close()
            raise

    def _inflow(self, cap: int) -> Inflow:
        flow = Inflow(cap)
        self.opened.append(flow)
        return flow

    def far_ends(self) -> list[tuple[int, int]]:
        """(our number, the child's number) of all that the child gets besides 0, 1, 2."""
        ends = [
            (self.memory_file, config.JOB),
            (self.stdin.far, config.STDIN),
            (self.stdout.far, config.STDOUT),
            (self.stderr.far, config.STDERR),
            (self.status.far, config.STATUS),
            (self.log.far, config.LOG),
        ]
        return ends if self.report is None else [*ends, (self.report.far, config.REPORT)]

    def close_far(self) -> None:
        """Close our copies of what the child uses."""
        for flow in self.opened:
            flow.close_far()
        if self.memory_file >= 0:
            os.close(self.memory_file)
            self.memory_file = -1

    def close(self) -> None:
        """Close everything; closing twice is fine."""
        self.close_far()
        for flow in self.opened:
            flow.close()


def spawn(command: list[str], pipes: Pipes, procs: Sequence[int], null: int) -> int:
    """Start launcher and nsjail in the cgroups of `procs`; returns the pid. Raises OSError. All ends stay ours."""
    joins = ((fd, config.FIRST_CGROUP + i) for i, fd in enumerate(procs))
    ends = [*pipes.far_ends(), *joins]
    actions = [
        (os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in [(null, 0), (null, 1), (null, 2), *ends]
    ]
    return os.posix_spawn(
        command[0],
        command,
        {},
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
    )


class Supervision:
    """The loop of one run; `clock` is CLOCK_MONOTONIC in seconds."""

    def __init__(self, limits: Limits, pipes: Pipes, groups: JobCgroups, cpus: int) -> None:
        self.limits, self.pipes, self.groups, self.cpus = limits, pipes, groups, cpus
        self.killed: KillReason = ""
        self.status = Status()
        self.clock: Callable[[], float] = time.monotonic
        self._poller = select.poll()
        self._flows: dict[int, Inflow | Outflow] = {}

    def run(self, pid: int) -> Ending:
        """Watch the jail with process id `pid` until it ends or breaks a limit, then kill, drain and reap it."""
        begun = self.clock()
        self._register()
        try:
            self._watch(begun)
            seen_end = self.clock()
        finally:
            survivors = reap(pid, self.groups)
        for flow in self.pipes.opened:
            if isinstance(flow, Inflow):
                flow.drain()
        final = parse_status(self.pipes.status.content)
        start = final.started if final.started is not None else begun
        wall_s = max((final.ended or seen_end) - start, 0.0)
        cpu_s = self.groups.cpu_s()
        self._settle(final, wall_s, cpu_s)
        log = self.pipes.log.content.decode("utf-8", "replace")
        return Ending(self.killed, final, wall_s, cpu_s, survivors, log)

    def _settle(self, final: Status, wall_s: float, cpu_s: float) -> None:
        """Make the reason depend on the figures alone, not on how late this loop was scheduled."""
        over_wall = final.started is not None and wall_s > self.limits.wall_s
        if self.killed == "wall" and not over_wall:
            self.killed = ""  # it had ended in time; we only saw the clock first
        if not self.killed and over_wall:
            self.killed = "wall"
        elif not self.killed and cpu_s > self.limits.cpu_s:
            self.killed = "cpu"
        if self.killed:  # what it became after our kill is not its own doing
            final.exit_code = final.signal = None

    def _register(self) -> None:
        for flow in self.pipes.opened:
            if flow.fd >= 0:
                self._flows[flow.fd] = flow
                self._poller.register(flow.fd, select.POLLIN if isinstance(flow, Inflow) else select.POLLOUT)

    def _watch(self, begun: float) -> None:
        """Until the init reports an end, the jail closes its status pipe, or a limit is broken (`killed`)."""
        next_cpu = begun + self.limits.cpu_s / self.cpus
        while True:
            now = self.clock()
            started = self.status.started
            wall_end = begun + SETUP_DEADLINE_S if started is None else started + self.limits.wall_s
            if now >= wall_end:
                self.killed = "setup" if started is None else "wall"
                return
            if now >= next_cpu:
                left = self.limits.cpu_s - self.groups.cpu_s()
                if left <= 0:
                    self.killed = "cpu"
                    return
                # Using all CPUs the rest cannot be gone sooner than this, so there is no need to look earlier.
                next_cpu = now + max(left / self.cpus, MIN_CPU_POLL_S)
            timeout_ms = max(min(wall_end, next_cpu) - now, 0.0) * 1000
            for fd, _ in self._poller.poll(timeout_ms + 0.5):
                if not self._serve(fd):
                    return

    def _serve(self, fd: int) -> bool:
        """Serve one ready pipe. False when the run is over."""
        flow = self._flows[fd]
        more = flow.take() if isinstance(flow, Inflow) else flow.give()
        if not more:
            del self._flows[fd]
            self._poller.unregister(fd)
        if flow is self.pipes.status:
            self.status = parse_status(self.pipes.status.content)
            return more and self.status.ended is None
        limited = (self.pipes.stdout, self.pipes.stderr, self.pipes.report)
        if isinstance(flow, Inflow) and flow in limited and flow.total > flow.cap * (1 + FLOOD_FACTOR):
            self.killed = "output"
            return False
        return True


def reap(pid: int, groups: JobCgroups) -> int:
    """Kill all of the job and reap our child, the launcher; returns the number of survivors (0 is right)."""
    handle = os.pidfd_open(pid)
    try:
        survivors = groups.end(handle)
    finally:
        os.close(handle)
    if survivors == 0:
        os.waitpid(pid, 0)
    return survivors
