"""The bounds of a worker's own checks, each in a process that it may end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest

HEAD = "import re, time, sys\nfrom services.verifier.bounds import Bounds\n"


def run(body: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", HEAD + body], capture_output=True, timeout=60, check=False)


def test_a_catastrophic_expression_ends_its_process() -> None:
    evil = "with Bounds(0.3, 1 << 33).armed():\n    re.match(r'(a|a)*$', 'a' * 60 + 'b')\n"
    begun = time.monotonic()
    assert run(evil).returncode == -signal.SIGPROF
    assert time.monotonic() - begun < 30
    assert re.match(r"(a|a)*$", "aab") is None


def test_a_check_that_takes_all_memory_fails_and_what_follows_does_not() -> None:
    body = (
        "bounds = Bounds(60.0, 1 << 28)\n"
        "with bounds.armed():\n"
        "    try:\n        bytearray(1 << 29)\n        print('had it')\n"
        "    except MemoryError:\n        print('bounded')\n"
        "    with bounds.lifted():\n        print(len(bytearray(1 << 29)))\n"
        "    try:\n        bytearray(1 << 29)\n"
        "    except MemoryError:\n        print('again')\n"
        "print(len(bytearray(1 << 29)))\n"
    )
    done = run(body)
    assert done.stdout.split() == [b"bounded", b"536870912", b"again", b"536870912"], done.stderr


@pytest.mark.parametrize("where", ["with bounds.lifted():\n        spin(0.6)", "pass\nspin(0.6)"])
def test_time_outside_does_not_count(where: str) -> None:
    body = (
        "def spin(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"
        f"bounds = Bounds(0.4, 1 << 33)\nwith bounds.armed():\n    spin(0.1)\n    {where}\nprint('alive')\n"
    )
    assert run(body).stdout == b"alive\n"


def test_a_child_inherits_nothing() -> None:
    body = (
        "import subprocess\nbounds = Bounds(0.3, 1 << 28)\n"
        "code = 'import time, resource\\nprint(resource.getrlimit(resource.RLIMIT_DATA)[0])\\n'\n"
        "code += 'end = time.process_time() + 0.5\\nwhile time.process_time() < end: pass\\n'\n"
        "with bounds.armed():\n    with bounds.lifted():\n"
        "        done = subprocess.run([sys.executable, '-c', code], capture_output=True)\n"
        "print(done.returncode, done.stdout.decode().strip())\n"
    )
    assert run(body).stdout == b"0 -1\n"
