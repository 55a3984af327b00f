"""What the trusted programs in the jail share: bytes, frames, clocks and the end of other processes.

Invariant: nothing here trusts a process that runs the candidate: what is said of one comes from the kernel. Frames on the
report: kind (1 byte), case (4), length (4), payload.
"""

# ruff: noqa: D102, D103, E402, PTH123, SIM105 (few and cheap imports)
TYPE_CHECKING = False
import select
import time

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any
else:
    import posix as os  # `os` itself would cost a sixth of a run

REPORT = 9
HEAD = 5
TICK_S = 0.1
MOMENT_S = 0.005
ALONE_S = 5.0
BUSY = 0.5
"""Share of its time that a process which does not wait uses at least."""
JAILED_UID = JAILED_GID = 1000
REPORTER = 1002


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def frame(kind: bytes, case: int, payload: bytes = b"") -> bytes:
    return kind + case.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


def read_exactly(descriptor: int, count: int) -> bytes:
    """`count` bytes and not one more, so that what follows stays in the pipe. Raises EOFError."""
    parts: list[bytes] = []
    while count:
        part = os.read(descriptor, min(count, 65536))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_block(descriptor: int) -> bytes:
    """One block that the verifier wrote: length (4 bytes) and content."""
    return read_exactly(descriptor, int.from_bytes(read_exactly(descriptor, 4), "big"))


def take_block(descriptor: int) -> bytearray:
    """The same, length included, in memory that can be wiped: a child forked later must not find it."""
    head = read_exactly(descriptor, 4)
    block = bytearray(4 + int.from_bytes(head, "big"))
    block[:4] = head
    view, at = memoryview(block), 4
    while at < len(block):
        count = os.readv(descriptor, [view[at:]])
        if not count:
            raise EOFError
        at += count
    return block


def apart() -> None:
    """Make sure that no process which has given up this one's user and group signals it, or finds it in /proc.

    The jail starts a program with a report so (keeper.h). Its effective user is that of the others, which it may signal by
    that; whether they may signal it hangs on the real and the saved one alone. Raises RuntimeError.
    """
    if os.getuid() != REPORTER or os.getresgid() == (JAILED_GID,) * 3:
        raise RuntimeError("this program was not started as a user and in a group of its own")
    os.setresuid(REPORTER, JAILED_UID, REPORTER)  # the exec made the saved one the effective one
    no_new_privileges()


def no_new_privileges() -> None:
    """Give them up, for the children too, where the jail left that to the program (keeper.h, WITH_LATE). Raises OSError."""
    with open("/proc/self/status", "rb") as status:
        if b"\nNoNewPrivs:\t1" in status.read():
            return
    import ctypes  # costs a third of a run

    if ctypes.CDLL(None, use_errno=True).prctl(38, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def give_up() -> None:
    """In a child, before the candidate: leave user and group for good. Raises OSError."""
    os.setresgid(JAILED_GID, JAILED_GID, JAILED_GID)
    os.setresuid(JAILED_UID, JAILED_UID, JAILED_UID)


def used(pid: int) -> float:
    """CPU seconds of one process; judged by these, a case does not fail because the machine is busy."""
    # The clock of that process (Linux: complement of the id, then 2 for what the scheduler counts).
    return time.clock_gettime((~pid << 3) | 2)


def schedule(pid: "int | str") -> int:
    """A descriptor of what the kernel counts of a process's first thread; -1 if it does not say."""
    try:
        return os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def delayed(descriptor: int) -> float:
    """Seconds that the thread was ready to run and had no processor; 0 if the kernel does not say."""
    try:
        return int(os.pread(descriptor, 64, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def standing(pid: int) -> "tuple[Any, ...]":
    """How the scheduler treats a process: one that makes itself slow pays for it."""
    return (os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid))


class Clock:
    """Time that was really had: wall time less what this process and the one it watches waited for a processor."""

    def __init__(self, total_s: float, hard_s: float) -> None:
        self.begin, self.total_s, self.hard_s = time.monotonic(), total_s, hard_s
        self.lost = 0.0  # waited by processes that are gone
        self.cpu = 0.0  # CPU seconds of those
        self.watched = schedule("self")
        self.own = delayed(self.watched)
        self.fair = standing(0)
        self.late = False  # the hard end came before the time was had
        self.idle = False  # one was ended for its time, most of which it had waited

    def had(self, lost: float) -> float:
        return self.passed() - self.lost - lost - self.waited()

    def waited(self) -> float:
        """Seconds this process waited for a processor; none once somebody changed how it is scheduled."""
        return delayed(self.watched) - self.own if standing(0) == self.fair else 0.0

    def passed(self) -> float:
        return time.monotonic() - self.begin

    def last_words(self) -> bytes:
        """For the verifier: milliseconds waited for a processor, and of CPU, here and in the processes watched; late, idle."""
        lost, cpu = self.lost + self.waited(), self.cpu + time.process_time()
        return b"%d %d %d %d" % (lost * 1000, cpu * 1000, self.late, self.idle)


class Watch:
    """One child under its two bounds. `over()` says T when it has had its time and W when the machine gave none."""

    def __init__(self, clock: Clock, pid: int, wall_s: float, cpu_s: float) -> None:
        self.clock, self.pid, self.wall_s, self.cpu_s = clock, pid, wall_s, cpu_s
        self.cpu_before = 0.0
        self.begin, self.started = clock.had(0.0), time.monotonic()
        self.sampled = self.started

    def again(self) -> None:
        """The same child begins another case.

        What waiting there was is asked for now and then only; in between, all time counts as had, which adds at most the
        waiting of TICK_S to what a case has.
        """
        now = time.monotonic()
        self.cpu_before = used(self.pid)
        if now - self.sampled < TICK_S:
            self.begin += now - self.started
        else:
            self.begin, self.sampled = self.clock.had(self.lost()), now
        self.started = now

    def lost(self) -> float:
        """Seconds the child waited for a processor; none if it changed how it is scheduled."""
        try:
            if standing(self.pid) != self.clock.fair:
                return 0.0
        except OSError:
            return 0.0
        descriptor = schedule(self.pid)
        try:
            return delayed(descriptor)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def left(self) -> float:
        had = self.clock.had(self.lost())
        return min(self.wall_s + self.begin - had, self.clock.total_s - had)

    def spent(self) -> bool:
        """Whether it has used up its CPU time; not when it is gone, which its pipe tells."""
        try:
            return used(self.pid) - self.cpu_before >= self.cpu_s
        except OSError:
            return False

    def idle(self) -> bool:
        """Whether it waited for most of the time it has had, and not for a processor."""
        try:
            return used(self.pid) - self.cpu_before < BUSY * (self.clock.had(self.lost()) - self.begin)
        except OSError:
            return False

    def over(self) -> bytes:
        if self.spent():
            return b"T"
        if self.left() <= 0:
            self.clock.idle = self.clock.idle or self.idle()
            return b"T"
        if self.clock.passed() >= self.clock.hard_s:
            self.clock.late = True
            return b"W"
        return b""

    def end(self) -> "tuple[float, int]":
        """Kill the child and all that is left of earlier ones; (its CPU seconds, its wait status)."""
        # What took less than a moment did not wait for longer than that.
        lost = self.lost() if time.monotonic() - self.started > MOMENT_S else 0.0
        end_others()
        _, status, use = os.wait4(self.pid, 0)
        until_alone()
        cpu = use.ru_utime + use.ru_stime
        self.clock.lost += lost
        self.clock.cpu += cpu
        return cpu, status


def end_others() -> None:
    """End every process of the jail but this one and its init: one that left its group or its parent, too."""
    if os.geteuid() != JAILED_UID:
        raise RuntimeError("only in the jail")
    try:
        os.kill(-1, 9)
    except OSError:
        pass  # there is none


def until_alone() -> None:
    """Wait until the init has reaped all that `end_others` ended; nobody tells us of another's children.

    Raises TimeoutError: one cannot be killed.
    """
    end = time.monotonic() + ALONE_S
    while time.monotonic() < end:
        try:
            os.kill(-1, 9)
        except ProcessLookupError:
            return
        time.sleep(MOMENT_S / 50)
    raise TimeoutError("a process of an earlier case does not die")


def feed(descriptor: int, data: "bytes | memoryview", watch: Watch) -> bytes:
    """Write to a child that may not read. Empty when all is written, else the kind of its end: T, W, or X for a closed pipe."""
    view, poll = memoryview(data), select.poll()
    poll.register(descriptor, select.POLLOUT)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            if not poll.poll(TICK_S * 1000):
                over = watch.over()
                if over:
                    return over
        except BrokenPipeError:
            return b"X"
    return b""


def gather(descriptor: int, watch: Watch, take: "Callable[[bytes], bytes | None]") -> bytes:
    """Read until `take`, given all that came so far, returns a kind, or the time is over (T, W), or the end of the stream (X)."""
    data = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    wait_s, looked = min(watch.wall_s, TICK_S), time.monotonic()
    while True:
        # In short steps: the bound counts time that was had, which no poll knows of.
        ready = poll.poll(max(1.0, wait_s * 1000))
        if not ready or time.monotonic() - looked >= TICK_S:
            over = watch.over()
            if over:
                return over
            wait_s, looked = min(watch.left(), TICK_S), time.monotonic()
        if not ready:
            continue
        part = os.read(descriptor, 65536)
        if not part:
            return b"X"
        data += part
        made = take(data)
        if made is not None:
            return made
