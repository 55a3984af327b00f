"""Answers that reach for the verifier's own program beside them: none can stop, end or limit it, by any call.

A driver that stands still would hold its slot up to the jail's own wall limit, three times the card's, so it is not enough
that such an answer earns nothing: here each does its work beside the attack, and gets the score of that work in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import code, terminal
from services.verifier.jail import FileEntry, Host, Job, Limits, Slot
from tests.hostile.conftest import Seen, check_traces
from tests.slots import number

pytestmark = pytest.mark.hostile
LIMITS = Limits(wall_s=10.0, cpu_s=6.0)
Judge = Callable[..., Verdict]

# Whatever takes a process id, or could be made to send a signal, against every process here but this one and its init.
REACH = """
import ctypes, fcntl, os, resource, select, signal, socket
l = ctypes.CDLL(None, use_errno=True)
SIGNALS = (19, 20, 21, 9, 15, 11, 2, 1, 17, 23, 29, 34, 64)
def reach():
    done = []
    def attempt(name, call):
        try:
            result = call()
        except (OSError, ValueError):
            return
        if result != -1:
            done.append(name)
    def by_file(pid, sent):
        a, b = socket.socketpair()
        try:
            fcntl.fcntl(a, fcntl.F_SETOWN, pid)
            fcntl.fcntl(a, 10, sent)
            fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            b.send(b"x")
        finally:
            a.close(); b.close()
        return -1  # nobody tells whether it arrived
    def by_handle(pid, sent):
        handle = os.pidfd_open(pid)
        try:
            return l.syscall(424, handle, sent, 0, 0)
        finally:
            os.close(handle)
    mine = os.getpid()
    attempt("leave the group of whoever started this", lambda: os.setpgid(0, 0) or -1)
    for pid in range(2, 40):
        if pid == mine:
            continue
        for sent in SIGNALS:
            attempt(f"kill {pid} {sent}", lambda: os.kill(pid, sent))
            attempt(f"killpg {pid} {sent}", lambda: os.killpg(pid, sent))
            attempt(f"tkill {pid} {sent}", lambda: l.syscall(200, pid, sent))
            attempt(f"tgkill {pid} {sent}", lambda: l.syscall(234, pid, pid, sent))
            attempt(f"sigqueue {pid} {sent}", lambda: l.sigqueue(pid, sent, 0))
            attempt(f"pidfd {pid} {sent}", lambda: by_handle(pid, sent))
            attempt(f"owner {pid} {sent}", lambda: by_file(pid, sent))
        for what in range(16):
            attempt(f"prlimit {pid} {what}", lambda: resource.prlimit(pid, what, (0, 0)))
        attempt(f"setpgid {pid}", lambda: os.setpgid(pid, pid))
        attempt(f"oom {pid}", lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"))
        attempt(f"freeze {pid}", lambda: open(f"/proc/{pid}/timerslack_ns", "w").write("9" * 15))
    for sent in (19, 9):
        try: os.kill(-1, sent)
        except OSError: pass
    return done
"""


@pytest.fixture
def judge(slot: Slot, seen: Seen) -> Iterator[Judge]:
    def run(answer: str, spec: dict[str, Any], **settings: Any) -> Verdict:
        code.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        begun = time.monotonic()
        verdict = code.verify(task, settings, LIMITS, answer.encode(), slot)
        assert time.monotonic() - begun < LIMITS.wall_s
        return verdict

    yield run
    check_traces(slot, seen)


@pytest.mark.parametrize("isolate", ["process", "none", "jail"])
def test_the_driver_of_functions_is_out_of_reach(judge: Judge, isolate: str) -> None:
    spec = {
        "kind": "function",
        "entry": "f",
        "params": [],
        "cases": [{"args": [], "want": []} for _ in range(3)],
    }
    verdict = judge(REACH + "f = reach", spec, isolate=isolate)
    assert verdict.passed, verdict.parts[1].evidence


@pytest.mark.parametrize("isolate", ["process", "jail"])
def test_the_runner_of_programs_is_out_of_reach(judge: Judge, isolate: str) -> None:
    cases = [{"stdin": "x", "stdout": "[]\n"} for _ in range(3)]
    verdict = judge(
        REACH + "print(reach())", {"kind": "program", "language": "python", "cases": cases}, isolate=isolate
    )
    assert verdict.passed, verdict.parts[1].evidence


def test_runner_and_host_of_a_suite_are_out_of_reach(judge: Judge) -> None:
    names = ("first", "second")
    tests = "from answer import f\n" + "".join(f"def test_{name}(): assert f() == []\n" for name in names)
    spec = {
        "kind": "suite",
        "path": "answer.py",
        "tests": {"test_it.py": tests},
        "ids": [f"test_it.py::test_{name}" for name in names],
    }
    verdict = judge(REACH + "reach()\nf = reach", spec)
    assert verdict.passed, verdict.parts[1].evidence


def test_a_check_is_out_of_reach_of_what_it_starts(slot: Slot, seen: Seen) -> None:
    check = "import subprocess\nprint(subprocess.run(['/usr/bin/python3', '/w/answer.py'], stdout=-1, text=True).stdout)"
    spec = {
        "files": {},
        "trusted": {"check.py": check},
        "commands": [{"name": "it", "argv": ["/usr/bin/python3", "/t/check.py"], "stdout": "[]"}],
        "ignore": ["answer.py"],
    }
    terminal.check_spec(spec, {})
    task = Task(id="t", domain="d", prompt="p", spec=spec)
    command = f"cat > /w/answer.py <<'END'\n{REACH}\nprint(reach())\nEND\n"
    begun = time.monotonic()
    verdict = terminal.verify(task, {}, LIMITS, command.encode(), slot)
    assert verdict.passed, verdict
    assert time.monotonic() - begun < LIMITS.wall_s
    check_traces(slot, seen)


def test_a_program_that_is_not_set_apart_is_reached(slot: Slot, seen: Seen) -> None:
    """The attack above is one: the same calls end the parent of a job without a report, which shares its user."""
    start = "import subprocess\nsubprocess.run(['/usr/bin/python3', '/w/answer.py'])"
    files = {"answer.py": FileEntry((REACH + "reach()").encode())}
    outcome = slot.run(Job(argv=("/usr/bin/python3", "-c", start), files=files, limits=LIMITS))
    assert (outcome.cause, outcome.signal) == ("signal", 9), outcome
    check_traces(slot, seen)


PRIVILEGES = """
def privileges():
    return [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")]
"""


@pytest.fixture
def old_kernel(host: Host, tmp_path: Path) -> Iterator[Slot]:
    """A slot as on a kernel that takes ids away at an exec where no new privileges are allowed."""
    with Slot(f"temper-hostile-{number()}", tmp_path, replace(host, late=True)) as made:
        yield made


def test_it_holds_on_a_kernel_that_takes_ids_away_at_an_exec(old_kernel: Slot) -> None:
    """There the driver gives up new privileges itself: before the answer runs, and for it too."""
    source = REACH + PRIVILEGES + "def f(): return reach() + privileges()"
    spec = {"kind": "function", "entry": "f", "params": [], "cases": [{"args": [], "want": ["1"]}] * 2}
    for isolate in ("process", "none"):
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        verdict = code.verify(task, {"isolate": isolate}, LIMITS, source.encode(), old_kernel)
        assert verdict.passed, verdict.parts[1].evidence
    check = "import subprocess\nprint(subprocess.run(['/usr/bin/python3', '/w/answer.py'], stdout=-1, text=True).stdout)"
    checked = {
        "files": {},
        "trusted": {"check.py": check},
        "commands": [{"name": "it", "argv": ["/usr/bin/python3", "/t/check.py"], "stdout": "['1']"}],
        "ignore": ["answer.py"],
    }
    command = f"cat > /w/answer.py <<'END'\n{REACH}{PRIVILEGES}\nprint(reach() + privileges())\nEND\n"
    task = Task(id="t", domain="d", prompt="p", spec=checked)
    assert terminal.verify(task, {}, LIMITS, command.encode(), old_kernel).passed
    plain = old_kernel.run(Job(argv=("/bin/grep", "NoNewPrivs", "/proc/self/status"), limits=LIMITS))
    assert plain.stdout == b"NoNewPrivs:\t1\n"
