"""Run one prepared job to its end and say what happened.

Invariant: the supervisor's own clock and counters decide. It kills the job's whole cgroup, never one process; it waits
for nothing without a deadline; and when `run` returns, every process of the job is dead and reaped, or counted.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from services.verifier.jail.job import Limits
from services.verifier.jail.jobgroups import JobGroups
from services.verifier.jail.launcher import DEAD_DEADLINE_S, DONE, PAGE, RETRY_S, SETUP_DEADLINE_S, Launcher
from services.verifier.jail.pipes import Pipes
from services.verifier.jail.streams import CHUNK, Inflow, Outflow

MIN_CPU_POLL_S = 0.005
# A program may write this many times its cap, of which we keep one, before it is killed for it.
FLOOD_FACTOR = 4
# A pipe that was just emptied is left alone for so long, so that many small writes do not each wake us.
REST_S = 0.002

KillReason = Literal["", "wall", "cpu", "output", "setup"]


@dataclass(slots=True)
class Status:
    """What the job's init noted. Times are CLOCK_MONOTONIC seconds; `failed` names a step of the set-up that failed.

    `disturbed`: that the job's sockets are watched may have been felt in the job.
    """

    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    exec_errno: int | None = None
    failed: str = ""
    disturbed: bool = False


def read_page(page: bytes, number: int) -> Status:
    """The page as the init of job `number` left it (keeper.h); empty when it never came to write there."""
    told, error, step, start, end, wait_status, exec_errno, _, disturbed = PAGE.unpack(page[: PAGE.size])
    status = Status(disturbed=bool(disturbed))
    if error:
        status.failed = f"{step.rstrip(bytes(1)).decode('ascii', 'replace')}: {os.strerror(error)}"
    if told != number or not start:
        return status
    status.started = start / 1e9
    if end:
        status.ended = end / 1e9
        code = os.waitstatus_to_exitcode(wait_status)
        status.exit_code, status.signal = (code, None) if code >= 0 else (None, -code)
        status.exec_errno = exec_errno or None
    return status


@dataclass(slots=True)
class Ending:
    """All that was observed of one run; `survivors` is 0 unless the kernel failed to kill. `log`: what went wrong."""

    killed: KillReason
    status: Status
    wall_s: float
    cpu_s: float
    survivors: int
    log: str


class Supervision:
    """The loop of one run; `clock` is CLOCK_MONOTONIC in seconds."""

    def __init__(
        self, launcher: Launcher, number: int, limits: Limits, pipes: Pipes, groups: JobGroups, cpus: int
    ) -> None:
        self.launcher, self.number, self.limits, self.pipes = launcher, number, limits, pipes
        self.groups, self.cpus = groups, cpus
        self.killed: KillReason = ""
        self.broken = False  # the slot's own processes are gone
        self.most_pids = 0  # as seen here, where the kernel keeps no peak
        self.clock: Callable[[], float] = time.monotonic
        self._done = False
        self._poller = select.poll()
        self._flows: dict[int, Inflow | Outflow] = {}
        self._resting: list[int] = []
        self._rest_end = math.inf

    def run(self) -> Ending:
        """Watch the submitted job until it ends or breaks a limit, then kill, drain and count."""
        begun = self.clock()
        self._register()
        try:
            self._watch(begun)
        finally:
            survivors = 0 if self._done else self._end()
        all_dead = self.clock()
        for flow in self.pipes.opened:
            if isinstance(flow, Inflow):
                flow.drain()
        final = self._status()
        start = final.started if final.started is not None else begun
        wall_s = max((final.ended or all_dead) - start, 0.0)
        cpu_s = self.groups.cpu_s()
        self._settle(final, wall_s, cpu_s)
        return Ending(self.killed, final, wall_s, cpu_s, survivors, self._log(final))

    def _log(self, final: Status) -> str:
        if final.failed:
            return final.failed
        if not self.broken:
            return ""
        return self.launcher.last_words() or "the slot's own processes ended"

    def _status(self) -> Status:
        return read_page(self.launcher.page[: PAGE.size], self.number)

    def _settle(self, final: Status, wall_s: float, cpu_s: float) -> None:
        """Make the reason depend on the figures alone, not on how late this loop was scheduled."""
        over_wall = final.started is not None and wall_s > self.limits.wall_s
        if self.killed == "wall" and not over_wall:
            self.killed = ""  # it had ended in time; we only saw the clock first
        if not self.killed and not self.broken:
            if over_wall:
                self.killed = "wall"
            elif cpu_s > self.limits.cpu_s:
                self.killed = "cpu"
        if self.killed:  # what it became after our kill is not its own doing
            final.exit_code = final.signal = None

    def _register(self) -> None:
        self._poller.register(self.launcher.control.fileno(), select.POLLIN)
        for flow in self.pipes.opened:
            if flow.fd >= 0:
                self._flows[flow.fd] = flow
                self._poller.register(flow.fd, select.POLLIN if isinstance(flow, Inflow) else select.POLLOUT)

    def _watch(self, begun: float) -> None:
        """Until the keeper says that the job is over, or breaks, or a limit is broken (`killed`)."""
        next_cpu = begun + self.limits.cpu_s / self.cpus
        control = self.launcher.control.fileno()
        wall_end = begun + self.limits.wall_s  # until the true start is needed
        keeps_peak = self.launcher.groups.keeps_peak
        while True:
            if not keeps_peak:
                self.most_pids = max(self.most_pids, self.groups.pids())
            now = self.clock()
            if now >= wall_end:
                started = self._status().started
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
            if now >= self._rest_end:
                self._wake()
            timeout_ms = max(min(wall_end, next_cpu, self._rest_end) - now, 0.0) * 1000
            ready = [fd for fd, _ in self._poller.poll(timeout_ms + 0.5)]
            if control in ready:
                if self._heard():
                    return
                ready.remove(control)
            if not all(self._serve(fd) for fd in ready):
                return

    def _heard(self) -> bool:
        """Take one notice. True when the run is over."""
        try:
            notice = self.launcher.notice()
        except BlockingIOError:
            return False
        if notice is None:
            self.broken = True
            return True
        self._done = notice[:2] == (DONE, self.number)
        return self._done

    def _serve(self, fd: int) -> bool:
        """Serve one ready pipe. False when the run is over."""
        flow = self._flows[fd]
        before = flow.total if isinstance(flow, Inflow) else 0
        more = flow.take() if isinstance(flow, Inflow) else flow.give()
        if not more:
            del self._flows[fd]
            self._poller.unregister(fd)
        elif isinstance(flow, Inflow) and flow.total - before < CHUNK:
            self._poller.unregister(fd)
            self._resting.append(fd)
            self._rest_end = min(self._rest_end, self.clock() + REST_S)
        if more and flow is not self.pipes.stdin and flow.total > flow.cap * (1 + FLOOD_FACTOR):  # type: ignore[union-attr]
            self.killed = "output"
            return False
        return True

    def _wake(self) -> None:
        """Look again at the pipes that rested."""
        for fd in self._resting:
            self._poller.register(fd, select.POLLIN)
        self._resting.clear()
        self._rest_end = math.inf

    def _end(self) -> int:
        """Kill the job and wait for the keeper to reap it; returns the number of survivors (0 is right)."""
        poller = select.poll()
        poller.register(self.launcher.control.fileno(), select.POLLIN)
        stop = self.clock() + DEAD_DEADLINE_S
        while not self._done and not self.broken and (left := stop - self.clock()) > 0:
            # One by one, new forks can slip in between: then repeat soon.
            again_s = left if self.groups.kill() else RETRY_S
            if self.killed == "setup":
                self.launcher.groups.kill()  # it may not have come to join its own groups
            if poller.poll(again_s * 1000):
                self._heard()
        if self.broken:
            self.launcher.groups.kill()
            while self.groups.members() and self.clock() < stop:
                time.sleep(RETRY_S)  # the last ones are dying; a v1 group has no event for it
        return len(self.groups.members())
