"""What a slot uses again is as new: a network namespace in which no socket was ever made, groups in which nothing happened.

The programs here try to make a socket without anybody noticing, or to leave figures of theirs to the next job. `attack`
looks after each at everything that the next job finds; here it is also shown that a thing was used again, or was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from services.verifier.jail import Job, Limits, Outcome, Slot
from tests.hostile.conftest import CALM

pytestmark = pytest.mark.hostile
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
NETWORK = Job(argv=("/usr/bin/readlink", "/proc/self/ns/net"), limits=CALM)

SECCOMP = (
    "import ctypes, os, struct\nl = ctypes.CDLL(None, use_errno=True)\n"
    "def install(program, flags=0):\n"
    "  class P(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('f', ctypes.c_char_p)]\n"
    "  l.prctl(38, 1, 0, 0, 0)\n"
    "  r = l.syscall(317, 1, flags, ctypes.byref(P(len(program) // 8, program)))\n"
    "  return r, ctypes.get_errno()\n"
    "def one(code, value, yes=0, no=0): return struct.pack('=HBBI', code, yes, no, value)\n"
    "def only(number, action): return one(0x20, 0) + one(0x15, number, 0, 1) + one(6, action) + one(6, 0x7fff0000)\n"
)
MAKE = {
    "inet": "import socket; socket.socket()",
    "inet6": "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "unix": "import socket; socket.socket(socket.AF_UNIX)",
    "netlink": "import socket; socket.socket(16, socket.SOCK_RAW, 0)",
    "pair": "import socket; socket.socketpair()",
    "high-bits": "import ctypes; assert ctypes.CDLL(None).syscall(41, (1 << 40) | 2, ctypes.c_long(1 << 35 | 1), 0) >= 0",
    "grandchild": (
        "import os, socket\nif not os.fork():\n  os.setsid()\n  if not os.fork(): socket.socket(); os.open('/tmp/done', 64)\n"
        "  os._exit(0)\nwhile not os.path.exists('/tmp/done'): pass"
    ),
    "thread": "import socket, threading; t = threading.Thread(target=socket.socket); t.start(); t.join()",
    "dies-of-it": (
        "import os, socket\nr, w = os.pipe()\nfor _ in range(100):\n  p = os.fork()\n  if not p:\n"
        "    socket.socket(); os.write(w, b'.')\n    while True: socket.socket()\n"
        "  os.read(r, 1); os.kill(p, 9); os.wait()"
    ),
    "own-filter-allows": SECCOMP
    + "assert install(only(41, 0x7fff0000))[0] == 0\nassert l.socket(2, 1, 0) >= 0",
    "own-filter-logs": SECCOMP
    + "assert install(only(41, 0x7ffc0000))[0] == 0\nassert l.socket(2, 1, 0) >= 0",
    "own-filter-traces": SECCOMP
    + "assert install(only(41, 0x7ff00000))[0] == 0\nassert l.socket(2, 1, 0) >= 0",
}


def network(slot: Slot) -> bytes:
    """The network namespace that a job has."""
    outcome = slot.run(NETWORK)
    assert outcome.cause == "exit", outcome
    assert outcome.stdout.startswith(b"net:["), outcome
    return outcome.stdout


@contextmanager
def held(slot: Slot) -> Iterator[None]:
    """Keep the slot's network namespaces alive, so that no new one gets the number of an old one."""
    with ExitStack() as files:
        for tree in slot.host.trees:
            for pid in (tree.parent / slot.name / "keep" / "cgroup.procs").read_text().split():
                files.enter_context(Path(f"/proc/{pid}/ns/net").open("rb"))
        yield


def groups(slot: Slot) -> set[str]:
    """Names of the groups of jobs that stand now."""
    return {path.name for tree in slot.host.trees for path in (tree.parent / slot.name).glob("job-*")}


def test_a_program_without_sockets_leaves_its_network_to_the_next(slot: Slot) -> None:
    first = network(slot)
    assert network(slot) == first
    code = "import os\nfor _ in range(5): os.fork()\nopen('/w/f', 'w').write(open('/proc/net/dev').read())"
    assert slot.run(Job(argv=(*PYTHON, code), limits=CALM)).cause == "exit"
    assert network(slot) == first


@pytest.mark.parametrize("name", MAKE)
def test_who_makes_a_socket_is_the_last_in_its_network(
    slot: Slot, attack: Callable[..., Outcome], name: str
) -> None:
    before = network(slot)
    with held(slot):
        outcome = slot.run(Job(argv=(*PYTHON, MAKE[name]), limits=CALM))
        assert (outcome.cause, outcome.exit_code) == ("exit", 0), outcome.stderr
        assert network(slot) != before
    attack((*PYTHON, MAKE[name]), CALM)


@pytest.mark.parametrize(
    ("code", "cause"), [("import os; os.kill(os.getpid(), 9)", "signal"), ("while True: pass", "wall")]
)
def test_who_had_to_be_ended_is_the_last_in_its_network(slot: Slot, code: str, cause: str) -> None:
    before = network(slot)
    with held(slot):
        outcome = slot.run(Job(argv=(*PYTHON, code), limits=Limits(wall_s=0.3, cpu_s=5)))
        assert outcome.cause == cause
        assert (network(slot) == before) is (cause == "signal")


def test_a_socket_is_had_in_spite_of_signals_and_of_a_crowd(attack: Callable[..., Outcome]) -> None:
    """That each is told of is not to be noticed: no call is broken off, none fails."""
    code = (
        "import signal, socket, threading\n"
        "signal.signal(signal.SIGALRM, lambda *_: None); signal.siginterrupt(signal.SIGALRM, True)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\n"
        "import ctypes; l = ctypes.CDLL(None, use_errno=True); import os\nbad = []\n"
        "def many():\n  for _ in range(300):\n    fd = l.socket(2, 1, 0)\n"
        "    bad.append(ctypes.get_errno()) if fd < 0 else os.close(fd)\n"
        "crowd = [threading.Thread(target=many) for _ in range(8)]\n"
        "[t.start() for t in crowd]; many(); [t.join() for t in crowd]\n"
        "signal.setitimer(signal.ITIMER_REAL, 0); open('/w/runs', 'a').write('.'); print(bad, open('/w/runs').read())"
    )
    outcome = attack((*PYTHON, code), CALM)
    assert (outcome.cause, outcome.stdout) == ("exit", b"[] .\n"), outcome  # whatever had to be run twice


def test_nobody_else_is_told(attack: Callable[..., Outcome]) -> None:
    """A program can neither listen itself, which would keep the init from noticing, nor have a call answered by itself."""
    code = SECCOMP + (
        "print(install(only(41, 0x7fc00000), 8))\n"  # EBUSY
        "print(install(only(41, 0x7fc00000))[0])\n"
        "print(l.socket(2, 1, 0), ctypes.get_errno())"  # nobody listens to that one: ENOSYS
    )
    outcome = attack((*PYTHON, code), CALM)
    assert outcome.stdout.split(b"\n")[:3] == [b"(-1, 16)", b"0", b"-1 38"], outcome


def test_groups_in_which_nothing_happened_serve_the_next(slot: Slot) -> None:
    network(slot)
    kept = groups(slot)
    assert len(kept) == 1
    code = "b = b'x' * 100_000_000; sum(range(3_000_000))"
    outcome = slot.run(Job(argv=(*PYTHON, code), limits=CALM))
    assert outcome.peak_memory_bytes > 90 << 20
    assert outcome.cpu_s > 0.03
    assert groups(slot) == kept
    outcome = slot.run(NETWORK)
    assert groups(slot) == kept
    assert outcome.peak_memory_bytes < 8 << 20
    assert (outcome.peak_pids, outcome.cpu_s < 0.03) == (1, True)


BUSY = {
    "more-processes": (
        "import os\nif os.fork(): os.wait()",
        CALM,
    ),
    "refused-forks": (
        "import os\ntry:\n  while True:\n    if not os.fork(): __import__('time').sleep(9)\nexcept OSError: os._exit(3)",
        Limits(wall_s=20, cpu_s=10, pids=5),
    ),
    "killed-for-memory": (
        "import os\nif not os.fork(): b'x' * 200_000_000\nos.wait()",
        Limits(wall_s=20, cpu_s=10, memory_bytes=64 << 20),
    ),
}


@pytest.mark.parametrize("name", BUSY)
def test_groups_in_which_something_happened_do_not(slot: Slot, name: str) -> None:
    code, limits = BUSY[name]
    outcome = slot.run(Job(argv=(*PYTHON, code), limits=limits))
    assert outcome.cause in ("exit", "pids", "memory"), outcome
    kept = groups(slot)
    network(slot)
    assert groups(slot) != kept
    last = groups(slot)
    slot.run(Job(argv=NETWORK.argv, limits=Limits(wall_s=19, cpu_s=10)))
    assert groups(slot) != last  # other limits
    assert not [path for tree in slot.host.trees for path in Path(tree.parent, slot.name).glob("job-*/job-*")]
