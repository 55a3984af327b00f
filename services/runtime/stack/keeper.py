"""A server started through this script never outlives its supervisor, not even one killed with SIGKILL.

Run as `python -IS keeper.py SUPERVISOR_FD GRACE_S HELD_FDS -- COMMAND...` (HELD_FDS: by commas, or empty).
SUPERVISOR_FD is a pidfd of the supervisor. Unlike a pipe it cannot be kept open by a process that it forked,
and unlike PR_SET_PDEATHSIG on the supervisor's side it does not fire when only the *thread* that started us
ends. The keeper has one thread, so it may itself use PR_SET_PDEATHSIG on its child: that covers a keeper that
is killed first. Standard library only, no import of the project: it must start in a few milliseconds.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    """In the child, before exec: die by SIGKILL with the keeper, also if it ended before this call."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _stop(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ask the child's session to end, and after the grace period end it."""
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        # The child leads its own session: what it left behind goes too.
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main(argv: list[str]) -> int:
    """Start the command, write its process id to standard output, and wait for its end or the supervisor's.

    Returns the command's status: 128 + N for signal N, 127 when it cannot be run (then the output says why).
    """
    supervisor, grace_s = int(argv[0]), float(argv[1])
    for held in [supervisor, *(int(fd) for fd in argv[2].split(",") if fd)]:
        os.set_inheritable(held, False)  # noqa: FBT003 - its only signature
    # The interpreter demands a wake-up descriptor that does not block.
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    me = os.getpid()
    log = os.dup(2)
    try:
        child = subprocess.Popen(
            argv[4:],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: _die_with(me),
        )
    except OSError as error:
        print(f"cannot run {argv[4]}: {error.strerror}", flush=True)
        return 127
    # The reader may be gone already; the poll below then reports the supervisor's death.
    with contextlib.suppress(BrokenPipeError):
        print(child.pid, flush=True)
    poller = select.poll()
    watched = os.pidfd_open(child.pid)
    for descriptor in (supervisor, wake_read, watched):
        poller.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poller.poll()}
    started = time.monotonic()
    _stop(child, 0.0 if watched in ready else grace_s)
    if supervisor in ready:
        print(
            f"keeper: supervisor gone, command stopped after {time.monotonic() - started:.1f} s",
            file=sys.stderr,
        )
    code = child.returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
