"""Runs one program in the jail, a process a case, and relays what each printed through the report descriptor.

Invariant: the report descriptor and the order are closed in every process that runs the candidate, this process cannot be
traced, and how a program ended is what the kernel says of it. Each case has a folder of its own to work in.
"""

# ruff: noqa: BLE001, D103, E402, PTH123, SLF001 (runs what is jailed, on few and cheap imports)
TYPE_CHECKING = False
import marshal
import select
import time

from services.verifier.inside.kit import (
    REPORT,
    TICK_S,
    Clock,
    Watch,
    apart,
    end_others,
    frame,
    give_up,
    read_block,
    take_block,
    write_all,
)

if TYPE_CHECKING:
    import os
    import signal
    from typing import Any
else:
    import _signal as signal
    import posix as os  # `os` itself would cost a sixth of a run

# Kinds of frames: B ready, S syntax error, O ended (payload: wait status in 4 bytes, output), T too slow, W the machine was,
# L printed too much, D what was waited for a processor.
FIRST_FREE, LAST = 3, 4096


def start(argv: "list[str]", order: "dict[str, Any]", given: int, out: int, folder: str) -> int:
    """Fork and run the program; its process id."""
    leave = os._exit
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            give_up()
            os.dup2(given, 0)
            os.dup2(out, 1)
            os.dup2(order["null"], 2)
            os.closerange(FIRST_FREE, LAST)
            os.chdir(folder)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execve(argv[0], argv, {**order["env"], "HOME": folder, "PWD": folder})
        finally:
            leave(127)
    return pid


def follow(pid: int, out: int, watch: Watch, cap: int) -> "tuple[bytes, bytes]":
    """(kind, output) of a program that runs: O once it has ended, else T, W or L."""
    ended = os.pidfd_open(pid)
    poll, data, looked = select.poll(), bytearray(), time.monotonic()
    poll.register(ended, select.POLLIN)
    poll.register(out, select.POLLIN)
    wait_s = min(watch.wall_s, TICK_S)
    try:
        while True:
            ready = dict(poll.poll(max(1.0, wait_s * 1000)))
            if not ready or time.monotonic() - looked >= TICK_S:
                over = watch.over()
                if over:
                    return over, b""
                wait_s, looked = min(watch.left(), TICK_S), time.monotonic()
            if ended in ready:
                end_others()  # whatever still holds the pipe
                os.set_blocking(out, False)
            if out in ready or ended in ready:
                more = drain(out, data, cap, once=ended not in ready)
                if len(data) > cap:
                    return b"L", b""
                if ended in ready:
                    return b"O", bytes(data)
                if not more:
                    poll.unregister(out)  # closed, and it runs on
    finally:
        os.close(ended)


def drain(out: int, data: bytearray, cap: int, *, once: bool) -> bool:
    """Read what is there, up to a little more than `cap`. False at the end of the stream."""
    while len(data) <= cap:
        try:
            part = os.read(out, 65536)
        except BlockingIOError:
            return True
        if not part:
            return False
        data += part
        if once:
            break
    return True


def attempt(number: int, order: "dict[str, Any]", clock: Clock) -> "tuple[bytes, bytes]":
    """One case: (kind, payload) of its frame."""
    block = take_block(0)
    args, text = marshal.loads(memoryview(block)[4:])  # noqa: S302 (the verifier wrote it)
    folder = f"/w/{number}"
    os.mkdir(folder)
    given = os.memfd_create("stdin", 0)
    write_all(given, text)
    os.lseek(given, 0, 0)
    inner, out = os.pipe()
    pid = start([*order["argv"], *args], order, given, out, folder)
    for mine in (given, out):
        os.close(mine)
    watch = Watch(clock, pid, order["case_s"], order["case_cpu_s"])
    try:
        kind, data = follow(pid, inner, watch, order["cap"])
    finally:
        os.close(inner)
        cpu_s, status = watch.end()
    if kind == b"O" and cpu_s >= order["case_cpu_s"]:
        return b"T", b""  # too slow, whether or not somebody looked in time
    return kind, status.to_bytes(4, "big") + data if kind == b"O" else b""


def main() -> None:
    apart()
    order = marshal.loads(read_block(0))  # noqa: S302
    clock = Clock(order["total_s"], order["hard_s"])
    order["null"] = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    if order["check"]:
        try:
            with open(order["check"], "rb") as file:
                compile(file.read(), "answer", "exec", dont_inherit=True)
        except BaseException as error:
            write_all(REPORT, frame(b"S", 0, type(error).__name__.encode()))
            return
    write_all(REPORT, frame(b"B", 0))
    for number in range(order["count"]):
        kind, payload = attempt(number, order, clock)
        write_all(REPORT, frame(kind, number, payload))
        if clock.late:
            break
    write_all(REPORT, frame(b"D", 0, clock.last_words()))


if __name__ == "__main__":
    main()
