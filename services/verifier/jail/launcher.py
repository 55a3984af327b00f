"""The processes that a slot keeps from job to job: launcher, nsjail and, inside, the keeper.

Invariant: they live in the slot's `keep` cgroups, hold nothing of a job once it has ended, and die with the process
that started them; whatever goes wrong with them is a LaunchError, after which they are stopped and made anew.
"""

from __future__ import annotations

import array
import mmap
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Sequence

from services.verifier.jail import config
from services.verifier.jail.cgroups import SlotGroups
from services.verifier.jail.streams import Inflow, high

# Making the namespaces takes milliseconds; on a machine this slow nothing that we measure would be worth anything.
SETUP_DEADLINE_S = 20.0
DEAD_DEADLINE_S = 5.0
RETRY_S = 0.001
LOG_CAP = 16_384
LOG_TAIL = 300
READY, DONE = 1, 2
NOTICE = struct.Struct("=IIi")
PAGE = struct.Struct("=Ii24sqqiiii")  # keeper.h, `struct page`
HANDED_MAX = 2


class LaunchError(OSError):
    """The slot's own processes cannot be started, or broke; the message is one line."""


class GoneError(LaunchError):
    """They are gone, and have not heard of the job."""


class Launcher:
    """Started on construction. `run` asks it for one job; then watch `control` for the notice of its end."""

    def __init__(self, command: list[str], groups: SlotGroups, null: int, program: bytes) -> None:
        """`command` starts launcher and nsjail; `program` is the system call filter. Raises OSError."""
        self.groups = groups
        self._pid = self._handle = -1
        self._poller = select.poll()
        self.log = Inflow(LOG_CAP)
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.hold, hold = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.hold.setblocking(False)  # noqa: FBT003 (the socket's own interface)
        far = [high(control.detach()), high(hold.detach())]
        try:
            far += [high(os.memfd_create("page")), high(os.memfd_create("filter"))]
            os.ftruncate(far[2], mmap.PAGESIZE)
            os.write(far[3], program)
            os.lseek(far[3], 0, os.SEEK_SET)
            self.page = mmap.mmap(far[2], mmap.PAGESIZE)
            self.log.far = high(self.log.far)
            groups.make()
            self._start(command, null, far)
            while far:
                os.close(far.pop())
            self.log.close_far()
            self._await_ready()
        except BaseException:
            for fd in far:
                os.close(fd)
            self.stop()
            raise

    def _start(self, command: list[str], null: int, far: Sequence[int]) -> None:
        """Spawn the launcher, which joins the groups before it starts nsjail."""
        procs = [high(fd) for fd in self.groups.keep.open_procs()]
        try:
            theirs = (config.CONTROL, config.HOLD, config.PAGE, config.FILTER)
            ends = [*zip(far, theirs, strict=True), (self.log.far, config.LOG)]
            ends += [(fd, config.FIRST_CGROUP + i) for i, fd in enumerate(procs)]
            self._pid = os.posix_spawn(
                command[0],
                command,
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, *pair) for pair in [(null, 0), (null, 1), (null, 2), *ends]
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
            )
        finally:
            for fd in procs:
                os.close(fd)
        self._handle = os.pidfd_open(self._pid)
        self._poller.register(self._handle, select.POLLIN)

    def _await_ready(self) -> None:
        """Until the keeper says that it is there. Raises LaunchError with the end of nsjail's log."""
        self.control.settimeout(SETUP_DEADLINE_S)
        try:
            ready = self.control.recv(NOTICE.size)
        except OSError as error:
            ready = b""
            why = str(error)
        else:
            why = "nsjail ended"
        if len(ready) != NOTICE.size:
            # Stopped first: only then has nsjail written the last line of its log.
            self._kill()
            raise LaunchError(f"the jail could not be set up: {self.last_words() or why}")
        self.control.setblocking(False)  # noqa: FBT003 (the socket's own interface)

    def ended(self) -> bool:
        """Whether the slot's own processes are gone, killed by somebody else."""
        return bool(self._poller.poll(0))

    def run(self, header: bytes, text: bytes, fds: Sequence[int]) -> None:
        """Ask for one job. Raises OSError: GoneError when the keeper is gone."""
        self.page[: PAGE.size] = bytes(PAGE.size)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            self.control.sendmsg([header, text], rights, socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise GoneError("the slot's own processes ended before the job began") from error

    def notice(self) -> tuple[int, int, int] | None:
        """(kind, job, wait status of its init), or None when the keeper is gone. Raises BlockingIOError: nothing yet."""
        try:
            data = self.control.recv(NOTICE.size)
        except ConnectionResetError:
            return None
        return NOTICE.unpack(data) if len(data) == NOTICE.size else None

    def handed(self, number: int) -> list[int]:
        """Descriptors that the init of job `number` handed over so far: the upper folder, then a listener if any."""
        found: list[int] = []
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.hold, 4, HANDED_MAX, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return found
            except ConnectionResetError:
                return found
            if not data:
                return found
            if int.from_bytes(data, "little") == number:
                found += fds
            else:  # of a job that was given up
                for fd in fds:
                    os.close(fd)

    def last_words(self) -> str:
        """The end of nsjail's log, on one line."""
        self.log.drain()
        lines = self.log.content.decode("utf-8", "replace").splitlines()
        return " | ".join(line.strip() for line in lines if line.strip())[-LOG_TAIL:]

    def _kill(self) -> None:
        """Kill everything in the slot's groups and reap the launcher. Raises LaunchError when something lives on."""
        if self._handle < 0:
            return
        end = time.monotonic() + DEAD_DEADLINE_S
        while True:
            # One by one (v1), or when the launcher has not yet joined, some can slip through: then again soon.
            self.groups.kill()
            if self._poller.poll(RETRY_S * 1000):
                break
            if time.monotonic() > end:
                raise LaunchError(f"{len(self.groups.members())} processes of the slot could not be killed")
        os.close(self._handle)
        self._handle = -1
        os.waitpid(self._pid, 0)

    def stop(self) -> None:
        """End all processes of the slot and remove its groups. Raises OSError when something of them stays."""
        try:
            self._kill()
        finally:
            self.control.close()
            self.hold.close()
            self.log.close()
            self.groups.remove()
