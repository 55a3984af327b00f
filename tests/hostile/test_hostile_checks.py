"""A task's own check that starts the answer's program: that learns nothing of what the check knows, and reaches it by no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.verdicts import Verdict
from services.verifier.jail import FileEntry, Limits, Outcome, Slot
from tests.hostile.watched import judge_of_commands  # noqa: F401 (a fixture, by the name judge)

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)


# A check of the task's that starts the answer's program on hidden cases, as an author would write it.
STARTS = """
import subprocess, sys
for args, want in [(["2", "3"], "5"), (["10", "20"], "30")]:
    got = subprocess.run(["/bin/sh", "/w/add.sh", *args], capture_output=True, text=True, timeout=5).stdout.strip()
    if got != want:
        sys.exit("wrong")
print("right")
"""
STARTING: dict[str, Any] = {
    "files": {},
    "trusted": {"check.py": STARTS},
    "commands": [
        {
            "name": "check",
            "argv": ["/usr/bin/python3", "/t/check.py", "s3cret"],
            "stdout": "right",
            "stdin": "s3cret",
        }
    ],
    "ignore": ["add.sh"],
}


def test_a_check_owns_what_lies_in_the_folder(judge: Callable[..., Verdict]) -> None:
    """It has a real user of its own, which what asks for permissions does not find."""
    check = (
        "import collections, dataclasses, os, shutil, tempfile\ncollections.namedtuple('pair', 'a b')\n"
        "@dataclasses.dataclass\nclass Kept:\n  a: int\nassert Kept(1) == Kept(1)\nfile = tempfile.NamedTemporaryFile(dir='/w')\n"
        "print(os.access('tool', os.R_OK | os.W_OK | os.X_OK), os.access('dull', os.X_OK), shutil.which('tool', path='/w'),"
        " os.stat('tool').st_uid == os.getuid(), os.stat('tool').st_gid == os.getgid(), os.access(file.name, os.W_OK))"
    )
    spec = {
        "files": {},
        "trusted": {"check.py": check},
        "commands": [
            {
                "name": "it",
                "argv": ["/usr/bin/python3", "/t/check.py"],
                "stdout": "True False /w/tool True True True",
            }
        ],
        "ignore": ["*"],
    }
    assert judge("echo x > tool; chmod 700 tool; echo x > dull", spec).passed


def test_a_check_starts_the_answers_program(judge: Callable[..., Verdict]) -> None:
    assert judge("echo 'echo $(($1 + $2))' > add.sh", STARTING).passed
    assert judge("echo 'echo $(($1 - $2))' > add.sh", STARTING).score == 0.0


@pytest.mark.parametrize(
    "program",
    [
        "sed -n 's/.*want in .*\\[\"'$1'\", \"'$2'\"\\], \"\\([0-9]*\\)\".*/\\1/p' /t/check.py",
        "grep -ho '[0-9]*' /t/check.py /proc/[0-9]*/root/t/check.py | tail -1",
        "echo right > /proc/$PPID/fd/1; kill -INT $PPID",
        "echo right > /proc/$PPID/fd/1; kill -KILL $PPID",
        "echo right >&2; echo right; kill -TERM $PPID",
        "kill -STOP $PPID",
    ],
)
def test_a_program_that_a_check_starts_cannot_tell_what_it_wants(
    judge: Callable[..., Verdict], program: str
) -> None:
    answer = f"cat > add.sh <<'X'\n{program}\nX"
    assert judge(answer, STARTING).score == 0.0


# What such a program finds: it looks for each thing that the check knows, and the check says what was found.
LOOKS = """
import os, subprocess, sys
hidden, read_end = open("/t/want").read(), os.pipe()[0]
os.set_inheritable(read_end, True)
os.environ.pop("HOME")
done = subprocess.run(["/usr/bin/python3", "-S", "/w/look.py"], stdout=subprocess.PIPE, text=True)
bare = subprocess.Popen(["/bin/sh", "-c", "echo out; echo err >&2; cat"])
bare.wait()
print(done.stdout, end="")
"""
LOOK_AT_ALL = """
import ctypes, os
parent, found = os.getppid(), []
def look(name, do):
    try:
        found.append(f"{name} {do()!r}")
    except OSError:
        pass
look("groups", lambda: (os.getresgid() != (1000,) * 3 or os.getgroups() != []) or os.stat("/nothing"))
look("list", lambda: os.listdir("/t"))
look("file", lambda: open("/t/want").read())
look("back", lambda: os.setresgid(1002, 1002, 1002))
look("egid", lambda: os.setegid(1002))
for name in ("environ", "cmdline", "maps", "mem", "fd/0", "fd/1", "fd/2", "root/t/want", "cwd/../t/want", "status"):
    look(name, lambda: open(f"/proc/{parent}/{name}", "rb").read(99))
    look(f"self {name}", lambda: name.startswith("root") and open(f"/proc/self/{name}", "rb").read(99) or os.stat("/nothing"))
look("seen", lambda: [p for p in os.listdir("/proc") if p == str(parent)] or os.stat("/nothing"))
for fd in range(3, 300):
    look(f"descriptor {fd}", lambda: os.fstat(fd) and os.readlink(f"/proc/self/fd/{fd}"))
look("stdin", lambda: os.read(0, 99) or os.stat("/nothing"))
for fd in (0, 2):
    look(f"stream {fd}", lambda: os.readlink(f"/proc/self/fd/{fd}") != "/dev/null" or os.stat("/nothing"))
libc = ctypes.CDLL(None, use_errno=True)
look("trace", lambda: libc.ptrace(16, parent, 0, 0) == 0 or os.stat("/nothing"))
look("pidfd", lambda: libc.syscall(438, os.pidfd_open(parent), 1, 0) >= 0 or os.stat("/nothing"))
print(*found, sep="\\n")
print("end")
"""


def test_a_started_program_has_nothing_of_the_check(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {},
        "trusted": {"check.py": LOOKS, "want": "s3cret"},
        "commands": [
            {
                "name": "look",
                "argv": ["/usr/bin/python3", "/t/check.py", "s3cret"],
                "stdin": "s3cret",
                "stdout": "\nend",
            }
        ],
        "ignore": ["look.py"],
    }
    verdict = judge(f"cat > look.py <<'X'{LOOK_AT_ALL}X", spec)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    "step",
    [
        "import importlib, sys; sys.path.insert(0, '/w'); importlib.import_module('made')",
        "import sys; sys.path.insert(0, '.'); import made",
        "from importlib.util import *; s = spec_from_file_location('m', '/w/made.py'); s.loader.exec_module(module_from_spec(s))",
        "import os; getattr(os, 'system')('sh made.sh')",
        "import os; getattr(os, 'execv')('/bin/sh', ['sh', 'made.sh'])",
        "import os; os.fork() or getattr(os, 'execv')('/bin/sh', ['sh', 'made.sh']); os.wait()",
        "import os; os.waitpid(getattr(os, 'posix_spawn')('/bin/sh', ['sh', 'made.sh'], {}), 0)",
        "import builtins; getattr(builtins, 'exec')(open('/w/made.py').read())",
        "import importlib; importlib.import_module('runpy').run_path('/w/made.py')",
        "import importlib; importlib.import_module('pickle').loads(b'cos\\nsystem\\n(S\"sh made.sh\"\\ntR.')",
    ],
)
def test_a_check_that_would_run_the_answer_within_itself_is_stopped(
    judge: Callable[..., Verdict], step: str
) -> None:
    """If anything of the answer's ran, its file would be there, and the check would pass."""
    tail = "import os, sys\nsys.exit(0 if os.path.exists('/w/ran') else 1)"
    spec = {
        "files": {},
        "trusted": {"check.py": f"try:\n    {step}\nexcept RuntimeError:\n    pass\n{tail}"},
        "commands": [{"name": "c", "run": "python3 /t/check.py"}],
        "checks": [{"kind": "exists", "path": "made.py"}],
        "ignore": ["made.sh"],
    }
    verdict = judge("echo 'open(\"/w/ran\", \"w\")' > made.py; echo 'touch /w/ran' > made.sh", spec)
    assert [part.score for part in verdict.parts] == [1.0, 0.0], verdict


def test_the_trusted_folder_is_open_again_after_a_check(slot: Slot, attack: Callable[..., Outcome]) -> None:
    trusted = {"want": FileEntry(b"1")}
    sealed = attack(("/bin/cat", "/t/want"), CALM, trusted=trusted, sealed=True)
    assert (sealed.exit_code, sealed.stdout) == (1, b"")
    assert attack(("/bin/cat", "/t/want"), CALM, trusted=trusted, sealed=True, report=True).stdout == b"1"
    assert attack(("/bin/cat", "/t/want"), CALM, trusted=trusted).stdout == b"1"
