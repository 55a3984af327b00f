"""What the kernel counts for the whole machine, or for the user that made the jail: no job can use it up for anybody else.

While a program holds all that it could get, this process, outside and as the user that made the jail, gets what it asks for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from services.verifier.jail import Job, Limits, Outcome, Slot
from tests.hostile.conftest import Seen, check_traces

pytestmark = pytest.mark.hostile
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
ROOMY = Limits(wall_s=30.0, cpu_s=10.0, memory_bytes=512 << 20, open_files=4096, pids=64)
WITHIN_S = 15.0
libc = ctypes.CDLL(None, use_errno=True)

# Takes of each thing as many as there are, tells how many those were, and holds them.
TAKE = """
import ctypes, os, signal, time
l = ctypes.CDLL(None, use_errno=True)
def many(take, most=5000):
    n = 0
    while n < most and take() >= 0:
        n += 1
    return n
"""
HOLD = "\nprint(got, flush=True)\nopen('/w/up', 'w').close()\ntime.sleep(60)"
AIO = """
held = []
def take(events):
    held.append(ctypes.c_ulong(0))
    return l.syscall(206, events, ctypes.byref(held[-1]))
got = sum(many(lambda: take(events)) for events in (30000, 1000, 10))
"""
QUEUES = """
q = ctypes.CDLL("librt.so.1", use_errno=True)
class A(ctypes.Structure): _fields_ = [("v", ctypes.c_long * 8)]
a, names = A((ctypes.c_long * 8)(0, 1, 8, 0)), iter(range(10**6))
got = many(lambda: q.mq_open(b"/%d" % next(names), 0o102, 0o666, ctypes.byref(a)))
"""
WAYS = {
    "watches": ("got = many(lambda: l.syscall(294, 0)) + many(lambda: l.syscall(253))", 0),
    "watches-of-all-files": ("got = many(lambda: l.syscall(300, 0x200, 0))", 0),
    "asynchronous-io": (AIO, 0),
    "queues": (QUEUES, 80),  # in 8 KiB; the user outside has 800 KiB for all
    "signals-that-wait": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [34]); got = many(lambda: l.sigqueue(os.getpid(), 34, None))",
        256,
    ),
    "timers": (
        "t = ctypes.create_string_buffer(8)\ngot = many(lambda: l.syscall(222, 1, None, t))",
        256,
    ),
}  # fmt: skip


def jobs_processes(slot: Slot) -> list[int]:
    """Of the job that runs: its init first."""
    found: set[int] = set()
    for tree in slot.host.trees:
        for procs in (tree.parent / slot.name).glob("job-*/cgroup.procs"):
            with suppress(OSError):  # groups of the job before are just being removed
                found.update(map(int, procs.read_text().split()))
    return sorted(found)


@contextmanager
def held(slot: Slot, code: str) -> Iterator[list[Outcome]]:
    """While the program holds what it got; its outcome is in the list afterwards."""
    ended: list[Outcome] = []
    job = Job(argv=(*PYTHON, TAKE + code + HOLD), limits=ROOMY)
    running = threading.Thread(target=lambda: ended.append(slot.run(job)))
    running.start()
    try:
        end = time.monotonic() + WITHIN_S
        while not any(Path(f"/proc/{pid}/root/w/up").exists() for pid in jobs_processes(slot)):
            assert running.is_alive(), ended
            assert time.monotonic() < end
            time.sleep(0.01)  # nothing tells from inside the jail
        yield ended
    finally:
        for pid in jobs_processes(slot)[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.join(40)


def refused() -> dict[str, int]:
    """What we are not given now: name -> error."""
    found = {}
    for name, number, *arguments in (("inotify", 294, 0), ("fanotify", 300, 0x200, 0)):
        fd = libc.syscall(number, *arguments)
        if fd < 0:
            found[name] = ctypes.get_errno()
        else:
            os.close(fd)
    context = ctypes.c_ulong(0)
    if libc.syscall(206, 1000, ctypes.byref(context)):
        found["aio"] = ctypes.get_errno()
    else:
        libc.syscall(207, context)
    timer = ctypes.create_string_buffer(8)
    if libc.syscall(222, 1, None, timer):
        found["timer"] = ctypes.get_errno()
    else:
        libc.syscall(226, int.from_bytes(timer.raw[:4], "little"))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_job_takes_little_or_nothing_of_what_all_share(slot: Slot, seen: Seen, way: str) -> None:
    code, most = WAYS[way]
    before = refused()
    with held(slot, code) as ended:
        assert refused() == before
    assert [(outcome.cause, outcome.signal) for outcome in ended] == [("signal", signal.SIGKILL)]
    assert int(ended[0].stdout) <= most
    check_traces(slot, seen)


def test_huge_pages_are_none(slot: Slot, seen: Seen) -> None:
    """They are in no group's memory, so a machine that has set some aside would give them all to one job."""
    code = (
        "import ctypes, mmap\nl = ctypes.CDLL(None, use_errno=True)\n"
        "for flags in (0x40000, 0x40000 | 21 << 26, 0x40000 | 30 << 26):\n"
        "  try: mmap.mmap(-1, 1 << 21, flags=flags | 0x22); print('HOLE', flags)\n  except OSError as e: print(e.errno)\n"
        "for flags in (4, 4 | 21 << 26, 5): print(l.syscall(319, b'x', flags), ctypes.get_errno())\n"
        "for flags in (0o4600, 0o5600): print(l.shmget(0, 1 << 21, flags), ctypes.get_errno())"
    )
    outcome = slot.run(Job(argv=(*PYTHON, code), limits=ROOMY))
    assert outcome.stdout.split(b"\n") == [b"12"] * 3 + [b"-1 12"] * 5 + [b""], outcome
    check_traces(slot, seen)
