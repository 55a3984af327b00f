"""Programs that try to use up the machine: each ends for the reason that is true, in time, with nothing left.

The numbers are those of the catalogue of hostile programs that these tests grew from.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.verifier.jail import Limits, Outcome

pytestmark = pytest.mark.hostile
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
SMALL = Limits(wall_s=1.0, cpu_s=0.6, memory_bytes=96 << 20)
CALM = Limits(wall_s=10.0, cpu_s=5.0)


def hostile(
    name: str,
    code: str,
    want: tuple[str, ...] = ("exit",),
    exit_code: int | None = 0,
    limits: Limits = CALM,
    argv: tuple[str, ...] = PYTHON,
) -> object:
    """One row: the causes that are right, and the exit code if it has one."""
    return pytest.param((*argv, code), want, exit_code, limits, id=name)


RESOURCES = [
    hostile(
        "1-fork-bomb",
        "import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass",
        ("wall", "cpu"),
        None,
        SMALL,
    ),
    hostile(
        "2-fork-chain",
        "import os\nwhile 1:\n  if os.fork(): os._exit(0)",
        ("wall", "cpu", "exit"),
        None,
        SMALL,
    ),
    hostile(
        "3-thread-bomb",
        "import threading,time\nwhile 1: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        ("pids",),
        1,
    ),
    hostile("4-memory-bomb", "b=[]\nwhile 1: b.append(bytearray(1<<20))", ("memory",), None, CALM),
    hostile(
        "5-memory-of-many",
        "import os,time\nfor _ in range(12):\n  if not os.fork(): b=bytearray(20<<20); time.sleep(1); os._exit(0)\n"
        "for _ in range(12): os.wait()",
        ("memory",),
        0,
    ),
    hostile("6-memory-in-shm", "f=open('/dev/shm/x','wb')\nwhile 1: f.write(bytes(1<<20))", ("disk",), 1),
    hostile("7-sparse-map", "import mmap\nmmap.mmap(-1, 1<<40, flags=mmap.MAP_PRIVATE|0x4000)\nprint('end')"),
    hostile("8-disk-fill", "f=open('a','wb')\nwhile 1: f.write(bytes(1<<20)); f.flush()", ("disk",), 1),
    hostile(
        "8b-disk-fill-tmp",
        "import os\nfor i in range(99): open(f'/tmp/{i}','wb').write(bytes(1<<20))",
        ("disk",),
        1,
    ),
    hostile("9-inode-fill", "i=0\nwhile 1:\n  open(f'f{i}','w').close(); i+=1", ("disk",), 1),
    hostile("9b-directory-fill", "import os\ni=0\nwhile 1:\n  os.mkdir(f'/tmp/f{i}'); i+=1", ("disk",), 1),
    hostile("10-sparse-file", "import os\nopen('s','w').close(); os.truncate('s', 1<<40)", ("exit",), 1),
    hostile(
        "10b-sparse-files",
        "import os\nfor i in range(500): open(f's{i}','w').close(); os.truncate(f's{i}', 1<<24)",
    ),
    hostile("11-stdout-flood", "while 1: print('x'*1000)", ("output",), None),
    hostile("11b-stderr-flood", "import sys\nwhile 1: sys.stderr.write('x'*1000)", ("output",), None),
    hostile("11c-both", "import os\nwhile 1: os.write(1,b'x'*999); os.write(2,b'y'*999)", ("output",), None),
    hostile("13-cpu-spin", "while 1: pass", ("cpu",), None, Limits(wall_s=9, cpu_s=0.4)),
    hostile(
        "13b-cpu-spin-many",
        "import os\nfor _ in range(8):\n  if not os.fork():\n    while 1: pass\nos.wait()",
        ("cpu",),
        None,
        Limits(wall_s=9, cpu_s=0.5),
    ),
    hostile(
        "13c-cpu-hidden-in-children",
        "import os\nwhile 1:\n  if not os.fork():\n    sum(range(10**5)); os._exit(0)\n  os.wait()",
        ("cpu",),
        None,
        Limits(wall_s=9, cpu_s=0.5),
    ),
    hostile("14-sleep", "60", ("wall",), None, SMALL, argv=("/bin/sleep",)),
    hostile("14b-reads-stdin", "import sys\nassert sys.stdin.read() == ''"),
    hostile(
        "14c-stops-itself", "import os,signal\nos.kill(os.getpid(), signal.SIGSTOP)", ("wall",), None, SMALL
    ),
    hostile("pipe-hoarder", "import os\nl=[]\nwhile 1: l.append(os.pipe())", ("exit",), 1),
    hostile("arguments", "x" * 90_000, argv=("/bin/echo",)),
    hostile(
        "22-pdeathsig",
        "import ctypes,signal,time\nctypes.CDLL(None).prctl(1,0)\nfor s in range(1,65):\n"
        "  try: signal.signal(s,signal.SIG_IGN)\n  except (OSError,ValueError): pass\ntime.sleep(60)",
        ("wall",),
        None,
        SMALL,
    ),
    hostile(
        "closes-everything", "import os,time\nos.closerange(0,100); time.sleep(60)", ("wall",), None, SMALL
    ),
]


@pytest.mark.parametrize(("argv", "want", "exit_code", "limits"), RESOURCES)
def test_limit(
    attack: Callable[..., Outcome],
    argv: tuple[str, ...],
    want: tuple[str, ...],
    exit_code: int | None,
    limits: Limits,
) -> None:
    outcome = attack(argv, limits)
    assert outcome.cause in want, outcome
    if len(want) == 1:
        assert outcome.exit_code == exit_code
    if outcome.cause == "wall":
        assert limits.wall_s < outcome.wall_s < limits.wall_s + 0.5
    if outcome.cause == "cpu":
        assert limits.cpu_s < outcome.cpu_s < limits.cpu_s + 0.5
    if outcome.cause == "memory":
        assert outcome.peak_memory_bytes <= limits.memory_bytes
    assert len(outcome.stdout) <= limits.output_bytes
    assert len(outcome.stderr) <= limits.output_bytes
