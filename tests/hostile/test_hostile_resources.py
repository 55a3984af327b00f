"""Programs that try to use up the machine: each ends for the reason that is true, in time, with nothing left.

The numbers are those of the catalogue of hostile programs that these tests grew from.
"""

from __future__ import annotations

import itertools
import time
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
    hostile(
        "5b-memory-under-address-limits",
        "import os,resource,time\nfor _ in range(12):\n  if not os.fork():\n"
        "    resource.setrlimit(resource.RLIMIT_AS,(64<<20,64<<20))\n"
        "    b=bytearray(20<<20); time.sleep(1); os._exit(0)\nfor _ in range(12): os.wait()",
        ("memory",),
        0,
    ),
    hostile(
        "5c-memory-in-sysv-segments",
        "import ctypes\nl=ctypes.CDLL(None); l.shmat.restype=ctypes.c_void_p\nwhile 1:\n"
        "  i=l.shmget(0,8<<20,0o1600); ctypes.memset(ctypes.c_void_p(l.shmat(i,0,0)),1,8<<20)",
        ("memory",),
        None,
    ),
    hostile(
        "5d-memory-in-memory-files",
        "import os\nl=[]\nwhile 1:\n  l.append(os.memfd_create('x'))\n  for _ in range(8): os.write(l[-1], bytes(1<<20))",
        ("memory",),
        None,
    ),
    hostile(
        "5e-memory-in-pipes",
        "import fcntl,os\nl=[]\nwhile 1:\n  r,w=os.pipe(); l+=[r,w]; os.set_blocking(w,False)\n  fcntl.fcntl(w,1031,1<<20)\n"
        "  try:\n    while 1: os.write(w,bytes(1<<16))\n  except BlockingIOError: pass",
        ("memory",),
        None,
        Limits(wall_s=10, cpu_s=5, memory_bytes=32 << 20),
    ),
    hostile(
        "5f-memory-in-socket-pairs",
        "import socket\nl=[]\nwhile 1:\n  a,b=socket.socketpair(); l+=[a,b]; a.setsockopt(1,7,1<<30); a.setblocking(False)\n"
        "  try:\n    while 1: a.send(bytes(1<<16))\n  except BlockingIOError: pass",
        ("memory",),
        None,
        Limits(wall_s=10, cpu_s=5, memory_bytes=16 << 20),
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
        "10c-a-file-past-its-limit",
        "import os\nf=os.open('s',66)\nfor _ in range(99): os.write(f,bytes(1<<20))",
        ("exit",),
        1,
        Limits(wall_s=10, cpu_s=5, disk_bytes=64 << 20, file_bytes=2 << 20),
    ),
    hostile(
        "10b-sparse-files",
        "import os\nfor i in range(500): open(f's{i}','w').close(); os.truncate(f's{i}', 1<<24)",
    ),
    hostile("11-stdout-flood", "while 1: print('x'*1000)", ("output",), None),
    hostile("11b-stderr-flood", "import sys\nwhile 1: sys.stderr.write('x'*1000)", ("output",), None),
    hostile("11c-both", "import os\nwhile 1: os.write(1,b'x'*999); os.write(2,b'y'*999)", ("output",), None),
    hostile(
        "11d-flood-of-many",
        "import os\nfor _ in range(6):\n  if not os.fork():\n    while 1: os.write(1,b'x'*65536)\nos.wait()",
        ("output",),
        None,
    ),
    hostile(
        "13d-cpu-spin-in-threads",
        "import threading\ndef f():\n  while 1: pass\nfor _ in range(9): threading.Thread(target=f).start()",
        ("cpu",),
        None,
        Limits(wall_s=9, cpu_s=0.5),
    ),
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
    hostile(
        "14d-waits-for-a-lock-of-its-own",
        "import fcntl,os\nf=open('l','w'); fcntl.flock(f,2); g=open('l'); fcntl.flock(g,2)",
        ("wall",),
        None,
        SMALL,
    ),
    hostile(
        "14e-stops-all",
        "import os,signal\nfor _ in range(9):\n  if not os.fork(): signal.pause()\nos.kill(-1, signal.SIGSTOP)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)",
        ("wall",),
        None,
        SMALL,
    ),
    hostile(
        "14f-waits-in-an-open-call",
        "import os\nos.mkfifo('p')\nfor _ in range(9):\n  if not os.fork(): os.setsid(); os.open('p', os.O_RDONLY)\nos.wait()",
        ("wall",),
        None,
        SMALL,
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


SOCKETS = {
    "tcp": (
        "import socket\nserver=socket.create_server(('127.0.0.1',0)); l=[]; n=0\nfor _ in range(100):\n"
        "  a=socket.create_connection(server.getsockname()); b,_=server.accept(); l+=[a,b]\n"
        "  for x in (a,b):\n    x.setblocking(False)\n    try:\n      while 1: n+=x.send(bytes(1<<16))\n"
        "    except BlockingIOError: pass\n"
    ),
    "udp": (
        "import socket\nl=[]\nfor _ in range(100):\n  a=socket.socket(2,2); a.bind(('127.0.0.1',0)); l.append(a)\n"
        "  b=socket.socket(2,2); b.setblocking(False)\n  for _ in range(9): b.sendto(bytes(60000), a.getsockname())\n"
    ),
}


@pytest.mark.parametrize("kind", SOCKETS)
def test_5g_sockets_hold_no_more_than_their_share(attack: Callable[..., Outcome], kind: str) -> None:
    """Their buffers are not in a v1 group's memory: without a limit of their own 100 of them hold 780 MB."""
    limits = Limits(wall_s=10.0, cpu_s=5.0, memory_bytes=32 << 20)
    pages = "print(sum(int(x.split()[-1]) for x in open('/proc/net/sockstat') if x.split()[0] in ('TCP:', 'UDP:')))"
    outcome = attack((*PYTHON, SOCKETS[kind] + pages), limits)
    assert (outcome.cause, outcome.exit_code) == ("exit", 0), outcome
    assert int(outcome.stdout) * 4096 < 24 << 20  # the count is the machine's, other sockets included


def test_1b_the_most_processes_at_once_are_counted(attack: Callable[..., Outcome]) -> None:
    code = "import os,time\nfor _ in range(6):\n  if not os.fork(): time.sleep(0.2); os._exit(0)\nfor _ in range(6): os.wait()"
    outcome = attack((*PYTHON, code), CALM)
    assert (outcome.cause, outcome.peak_pids) == ("exit", 7)
    bomb = attack((*PYTHON, "import os\nwhile 1:\n  try: os.fork()\n  except OSError: pass"), SMALL)
    assert bomb.peak_pids == SMALL.pids


def test_11e_head_and_tail_of_a_flood_are_kept(attack: Callable[..., Outcome]) -> None:
    code = "import sys\nprint('begin'); sys.stdout.write('x' * 100_000); print('end')\nsys.stderr.write('y' * 70_000)"
    outcome = attack((*PYTHON, code), Limits(wall_s=10, cpu_s=5, output_bytes=32 << 10))
    assert (outcome.cause, outcome.exit_code) == ("exit", 0)
    assert outcome.stdout.startswith(b"begin\nxxx")
    assert outcome.stdout.endswith(b"xxxend\n")
    assert (outcome.stdout_truncated, outcome.stderr_truncated) == (True, True)
    kept = len(outcome.stdout) - len(f"\n[... {outcome.stdout_dropped} bytes left out ...]\n")
    assert kept + outcome.stdout_dropped == 100_010
    assert b"bytes left out" in outcome.stderr


def test_10d_what_sparse_files_only_claim_to_hold_is_never_read(attack: Callable[..., Outcome]) -> None:
    """500 files of 16 MB each, of which nothing is stored: 8 GB of zeros that nobody has the time, or the room, to read."""
    code = "import os\nfor i in range(500): open(f's{i}','w').close(); os.truncate(f's{i}', 1<<24)"
    begun = time.process_time()
    outcome = attack((*PYTHON, code), CALM, keep=True)
    assert time.process_time() - begun < 2.0
    assert (outcome.cause, outcome.exit_code) == ("exit", 0)
    assert not outcome.diff.complete
    assert outcome.snapshot is None
    assert "0 of them stored" in outcome.detail


def test_11f_a_report_is_never_marked(attack: Callable[..., Outcome]) -> None:
    code = "import os\nfor n in range(3000): os.write(9, b'%08d' % n)"
    outcome = attack((*PYTHON, code), Limits(wall_s=10, cpu_s=5, output_bytes=8000), report=True)
    assert outcome.report == b"".join(b"%08d" % n for n in range(1000))


def test_49_limits_do_not_depend_on_the_time_of_day(
    attack: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine may jump, both ways, while a program runs: ours is the one that cannot."""
    jumps = itertools.cycle((0.0, 4e9, 1e9, -5.0))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(jumps) * 1e9))
    slept = attack(("/bin/sleep", "0.3"), CALM)
    assert (slept.cause, slept.exit_code) == ("exit", 0)
    assert 0.3 <= slept.wall_s < 2.0
    outcome = attack(("/bin/sleep", "60"), SMALL)
    assert outcome.cause == "wall"
    assert SMALL.wall_s < outcome.wall_s < SMALL.wall_s + 0.5


def test_50_open_files_end_at_their_limit(attack: Callable[..., Outcome]) -> None:
    code = "import os\nn=3\ntry:\n  while 1: os.dup(0); n+=1\nexcept OSError as e: print(n, e.errno)"
    assert attack((*PYTHON, code), Limits(wall_s=10, cpu_s=5, open_files=77)).stdout == b"77 24\n"
