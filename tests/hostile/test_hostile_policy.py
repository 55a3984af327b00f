"""The filter that is in force is the policy file's, and refuses every call that it names, by whichever gate it is made."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.verifier.jail import Host, Job, Limits, Outcome, Slot
from services.verifier.jail.policy import EQUAL, FOREIGN, INSTRUCTION, NUMBERS, POLICY, compiled, parse

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)
PYTHON = ("/usr/bin/python3", "-S", "-c")
ATTACH, DETACH, GET_FILTER = 16, 17, 0x420C

# Arguments with which a call that got through would not fail with what the filter answers: bad addresses and numbers.
BY_NUMBER = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
answers = []
for number, arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(a) for a in arguments])
    answers.append([number, result, ctypes.get_errno()])
print(json.dumps(answers))
"""
# For each number one child that makes the call by the 32-bit gate; how it ended.
OLD_GATE = """
import ctypes, json, mmap, os, sys
ended = {}
for number in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        m = mmap.mmap(-1, 4096, prot=7)
        m.write(b"\\xb8" + number.to_bytes(4, "little") + bytes.fromhex("cd80c3"))
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
        os._exit(0)
    ended[number] = os.waitpid(pid, 0)[1]
print(json.dumps(ended))
"""


def triggers() -> list[tuple[int, int, list[int]]]:
    """(number, error, arguments) for every rule, and for every check of one."""
    rows = []
    for rule in parse(POLICY.read_text()):
        for test in rule.tests or [None]:
            arguments = [0xFFFF_FFFF_FFFF_F000] * 6
            if test is not None:
                arguments = [2, 1, 0, 0, 0, 0]
                arguments[test.argument] = test.value + (test.how != EQUAL)
            rows.append((rule.number, rule.error, arguments))
    return rows


def test_every_call_is_refused(attack: Callable[..., Outcome]) -> None:
    rows = triggers()
    outcome = attack((*PYTHON, BY_NUMBER, json.dumps([[n, a] for n, _, a in rows])), CALM)
    assert (outcome.cause, outcome.exit_code) == ("exit", 0), outcome
    answers = json.loads(outcome.stdout)
    assert answers == [[number, -1, error] for number, error, _ in rows]
    assert {number for number, _, _ in rows} == set(NUMBERS.values())


def test_every_call_of_x32_is_unknown(attack: Callable[..., Outcome]) -> None:
    rows = [[FOREIGN | number, [0] * 6] for number in (*NUMBERS.values(), 0, 39, 41, 59)]
    outcome = attack((*PYTHON, BY_NUMBER, json.dumps(rows)), CALM)
    assert {(result, error) for _, result, error in json.loads(outcome.stdout)} == {(-1, 38)}


def test_every_call_of_the_old_gate_ends_the_process(attack: Callable[..., Outcome]) -> None:
    # i386: exit, fork, mount, getpid, ptrace, socketcall, clone, keyctl, unshare, setns, bpf, socket, io_uring, clone3.
    numbers = [1, 2, 21, 20, 26, 102, 120, 288, 310, 346, 357, 359, 425, 435]
    outcome = attack((*PYTHON, OLD_GATE, json.dumps(numbers)), CALM)
    assert outcome.exit_code == 0, outcome
    ended = json.loads(outcome.stdout)
    assert {status & 0x7F for status in ended.values()} == {signal.SIGSYS}
    assert len(ended) == len(numbers)


def test_programs_that_need_what_is_left_work(attack: Callable[..., Outcome]) -> None:
    code = (
        "import socket, subprocess, threading, os, mmap, select\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "print(subprocess.run(['/bin/echo', 'child'], capture_output=True).stdout)\n"
        "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
        "for f in (socket.AF_INET, socket.AF_INET6):\n"
        "  s = socket.create_server(('::1' if f == socket.AF_INET6 else '127.0.0.1', 0), family=f)\n"
        "  c = socket.create_connection(s.getsockname()[:2]); s.accept()[0].send(b'y'); print(c.recv(1))\n"
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).bind((0, 0)); print(os.getppid())\n"
    )
    outcome = attack((*PYTHON, code), CALM)
    assert outcome.stdout == b"thread\nb'child\\n'\nb'x'\nb'y'\nb'y'\n1\n", outcome


def filter_of(pid: int) -> bytes:
    """The only filter of a process, as the kernel gives it out to one that traces it. Skips where it does not."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    assert libc.ptrace(ATTACH, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())
    try:
        os.waitpid(pid, 0x40000000)
        count = libc.ptrace(GET_FILTER, pid, 0, 0)
        if count < 0:
            pytest.skip(f"this kernel does not show filters: {os.strerror(ctypes.get_errno())}")
        buffer = ctypes.create_string_buffer(count * INSTRUCTION.size)
        assert libc.ptrace(GET_FILTER, pid, 0, ctypes.addressof(buffer)) == count
        assert libc.ptrace(GET_FILTER, pid, 1, 0) == -1  # there is no second one
        return buffer.raw
    finally:
        libc.ptrace(DETACH, pid, 0, 0)


def test_the_filter_in_force_is_the_policy_and_the_init_has_it_too(slot: Slot, host: Host) -> None:
    ended: list[Outcome] = []
    job = Job(argv=("/bin/sleep", "20"), limits=Limits(wall_s=30))
    running = threading.Thread(target=lambda: ended.append(slot.run(job)))
    running.start()
    group = next(
        tree.parent / slot.name for tree in host.trees if "kill" in tree.roles or len(host.trees) == 1
    )
    try:
        end = time.monotonic() + 10
        pids: list[int] = []
        while len(pids) < 2 or b"sleep" not in Path(f"/proc/{pids[-1]}/cmdline").read_bytes():
            assert time.monotonic() < end
            time.sleep(0.01)
            procs = [path / "cgroup.procs" for path in group.glob("job-*")]
            pids = sorted(int(pid) for path in procs for pid in path.read_text().split())
        found = [filter_of(pid) for pid in pids]
        status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    finally:
        for path in group.glob("job-*"):
            for pid in sorted(map(int, (path / "cgroup.procs").read_text().split()))[1:]:
                os.kill(pid, signal.SIGKILL)
        running.join(20)
    assert found == [compiled(), compiled()]
    for text in status:
        lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert {lines[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert (ended[0].cause, ended[0].signal) == ("signal", signal.SIGKILL)


def test_nsjail_reads_the_same_file(host: Host) -> None:
    """The policy is in nsjail's language: what this program cannot read as nsjail does would show here."""

    def run(*command: str) -> int:
        jail = [
            os.fspath(host.nsjail),
            "-Mo",
            "-Q",
            "--chroot",
            "/",
            "--disable_proc",
            "--seccomp_policy",
            str(POLICY),
        ]
        return subprocess.run(
            [*jail, "--", *command], timeout=30, check=False, stderr=subprocess.DEVNULL
        ).returncode

    ask = (
        "import ctypes, sys; l = ctypes.CDLL(None, use_errno=True); l.socket(*map(int, sys.argv[1:]));"
        "sys.exit(ctypes.get_errno())"
    )
    assert run("/bin/true") == 0
    assert run("/usr/bin/unshare", "-U", "true") == 1
    for family, protocol in ((17, 0), (40, 0), (15, 2), (4, 0), (2, 132), (2, 33)):
        assert run("/usr/bin/python3", "-S", "-c", ask, str(family), "1", str(protocol)) == 1, family
    assert run("/usr/bin/python3", "-S", "-c", ask, "2", "1", "0") == 0
