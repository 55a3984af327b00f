"""What programs leave behind: in the working folder, where it is read as data only, and anywhere else, where it is gone.

That nothing of it is found by the next job is checked by `attack` after every one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import pytest

from services.verifier.jail import FileEntry, Job, Limits, Outcome, Slot

pytestmark = pytest.mark.hostile
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
SHELL = ("/bin/sh", "-c")
CALM = Limits(wall_s=20.0, cpu_s=10.0)

LEAVE = {
    "time-wait": (
        "import socket\nfor _ in range(50):\n"
        "  s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n"
        "  a, _ = s.accept(); a.close(); c.close(); s.close()\n"
        "assert int(open('/proc/net/sockstat').read().split(' tw ')[1].split()[0]) >= 50"
    ),
    "listeners": (
        "import socket, os, time\n"
        "if not os.fork():\n  os.setsid()\n"
        "  l = [socket.create_server(('127.0.0.1', 47123)), socket.create_server(('::1', 47124), family=socket.AF_INET6)]\n"
        "  u = socket.socket(socket.AF_UNIX); u.bind('\\0temper-left-behind'); u.listen()\n"
        "  d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(('127.0.0.1', 47123)); os.mkdir('/tmp/up')\n"
        "  time.sleep(60)\n"
        "while not os.path.exists('/tmp/up'): time.sleep(0.01)"
    ),
    "sysv": (
        "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\n"
        "for key in range(1, 30):\n"
        "  assert l.shmget(key, 65536, 0o1666) >= 0 and l.semget(key, 8, 0o1666) >= 0 and l.msgget(key, 0o1666) >= 0\n"
        "l.shmat.restype = ctypes.c_void_p; m = l.shmat(0, 0, 0); ctypes.memset(m, 7, 65536)\n"
        "b = ctypes.create_string_buffer(b'\\1' * 8 + b'left'); l.msgsnd(0, b, 4, 0)"
    ),
    "posix-ipc": (
        "import ctypes, os\nl = ctypes.CDLL('librt.so.1', use_errno=True)\n"
        "fd = l.shm_open(b'/left', 0o102, 0o666); os.write(fd, b'x' * 99999)\n"
        "l.sem_open(b'/left', 0o100, 0o666, 1)\n"
        "class A(ctypes.Structure): _fields_ = [('v', ctypes.c_long * 8)]\n"
        "assert fd >= 0 and l.mq_open(b'/left', 0o102, 0o666, ctypes.byref(A((ctypes.c_long * 8)(0, 2, 128, 0)))) >= 0"
    ),
    "files-everywhere": (
        "import os\n"
        "for d in ('/w', '/tmp', '/dev/shm'):\n"
        "  os.chmod(d, 0o777); open(d + '/.hidden', 'w').write('x'); os.mkdir(d + '/d'); os.symlink('/', d + '/l')\n"
        "  os.mkfifo(d + '/p'); os.setxattr(d, 'user.left', b'x'); os.utime(d, (1, 1)); os.chmod(d, 0o000)"
    ),
    "locks": (
        "import fcntl, os, time\n"
        "if not os.fork():\n  os.setsid(); f = [open(p) for p in ('/usr/bin/env', '/etc/passwd', '/.init')]\n"
        "  [fcntl.flock(x, fcntl.LOCK_EX) for x in f]; [fcntl.lockf(x, fcntl.LOCK_SH) for x in f]\n"
        "  os.mkdir('/tmp/up'); time.sleep(60)\n"
        "while not os.path.exists('/tmp/up'): time.sleep(0.01)"
    ),
    "terms-of-the-process": (
        "import ctypes, os, resource, signal\nl = ctypes.CDLL(None)\n"
        "for what in range(16):\n  try: resource.setrlimit(what, (1, 1))\n  except (OSError, ValueError): pass\n"
        "l.personality(0x0400000); l.prctl(36, 1, 0, 0, 0); l.prctl(41, 1, 0, 0, 0); l.prctl(29, 1, 0, 0, 0)\n"
        "os.nice(19); os.umask(0o777); os.sched_setaffinity(0, {0}); os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        "signal.setitimer(signal.ITIMER_REAL, 500); [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 13, 15, 17)]\n"
        "l.syscall(251, 1, 0, 3 << 13 | 7)"
    ),
    "ping-of-the-loopback": (
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for p in range(1, 500): s.sendto(b'x' * 900, ('127.0.0.1', p))"
    ),
    "orphans": (
        "import os, time\nfor _ in range(20):\n  if not os.fork():\n    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n    time.sleep(60)\n  os.wait()"
    ),
    "stopped-orphans": (
        "import os, signal\nfor _ in range(20):\n  if not os.fork():\n    os.setsid(); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "  else: pass"
    ),
    "traps-for-streams": (
        "import fcntl, os\n"
        "for fd in (0, 1, 2):\n  fcntl.fcntl(fd, 1031, 1 << 20)\n  fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)\n"
        "  os.open(f'/proc/self/fd/{fd}', os.O_RDWR | os.O_NONBLOCK)\n"
        "print(os.fstat(1).st_mode)"
    ),
    "half-a-tree-without-permission": (
        "import os\nos.makedirs('a/b/c'); open('a/b/c/f', 'w').write('x'); "
        "os.chmod('a/b/c/f', 0); os.chmod('a/b', 0); os.chmod('a', 0)"
    ),
}


@pytest.mark.parametrize("name", LEAVE)
def test_left_behind(attack: Callable[..., Outcome], name: str) -> None:
    outcome = attack((*PYTHON, LEAVE[name]), CALM)
    assert (outcome.cause, outcome.exit_code) == ("exit", 0), outcome


def test_21_nothing_runs_between_the_end_and_the_snapshot(attack: Callable[..., Outcome]) -> None:
    """A daemon writes on and on, to one file after another; what is collected is one state of them all."""
    code = (
        "import os, time\nif not os.fork():\n  os.setsid()\n  fds = [os.open(f'f{n:03}', 66) for n in range(200)]\n  n = 0\n"
        "  while 1: n += 1; os.pwrite(fds[n % 200], b'%09d' % n, 0)\n"
        "while not os.path.exists('f199') or not os.path.getsize('f000'): time.sleep(0.001)\ntime.sleep(0.05)"
    )
    outcome = attack((*PYTHON, code), CALM, keep=True)
    assert outcome.exit_code == 0
    assert outcome.snapshot is not None
    numbers = []
    for change in outcome.diff.created:
        content = outcome.snapshot.read(change.path)
        assert content is not None
        assert hashlib.sha256(content).hexdigest() == change.digest
        numbers.append(int(content))
    # At any moment the files hold the last 200 numbers; had it run on, later files would hold ever later ones.
    assert sorted(numbers) == list(range(max(numbers) - 199, max(numbers) + 1))


LINKS = {
    "absolute": "/etc/shadow",
    "relative": "../../../../../../etc/shadow",
    "magic": "/proc/self/fd/0",
    "root": "/proc/1/root/etc/shadow",
    "chain": "absolute",
    "loop": "loop",
    "device": "/dev/zero",
    "folder": "/usr",
}


def test_36_links_are_recorded_as_links(attack: Callable[..., Outcome]) -> None:
    code = f"import os\nfor name, target in {LINKS!r}.items(): os.symlink(target, name)"
    outcome = attack((*PYTHON, code), CALM, keep=True)
    assert outcome.snapshot is not None
    found = {change.path: (change.type, change.digest) for change in outcome.diff.created}
    assert found == {
        name: ("symlink", hashlib.sha256(target.encode()).hexdigest()) for name, target in LINKS.items()
    }
    for name, target in LINKS.items():
        assert outcome.snapshot.read(name) is None
        assert outcome.snapshot.target(name) == target


def test_36b_a_link_in_the_place_of_a_folder_hides_what_is_beneath_it(
    attack: Callable[..., Outcome],
) -> None:
    code = "import os, shutil\nshutil.rmtree('out'); os.symlink('/etc', 'out')"
    outcome = attack((*PYTHON, code), CALM, keep=True, files={"out/passwd": FileEntry(b"mine")})
    assert outcome.snapshot is not None
    assert outcome.snapshot.read("out/passwd") is None
    assert [(c.path, c.type) for c in outcome.diff.changed] == [("out", "symlink")]
    assert [c.path for c in outcome.diff.deleted] == ["out/passwd"]


def test_36c_links_swapped_all_the_time(attack: Callable[..., Outcome]) -> None:
    code = (
        "import os, time\nif not os.fork():\n  os.setsid()\n  while 1:\n"
        "    os.symlink('/etc/passwd', 'l'); os.rename('l', 'out'); open('n', 'w').write('real'); os.rename('n', 'out')\n"
        "time.sleep(0.2)"
    )
    for _ in range(4):  # the end comes upon a link about half of the times
        outcome = attack((*PYTHON, code), CALM, keep=True)
        assert outcome.snapshot is not None
        assert outcome.snapshot.read("out") in (None, b"", b"real")
        assert outcome.snapshot.target("out") in (None, "/etc/passwd")


def test_37_what_is_no_regular_file_is_not_read(attack: Callable[..., Outcome]) -> None:
    code = (
        "import os, socket\nos.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('socket'); os.mkdir('result')\n"
        "for f in ('given', 'also'): os.unlink(f)\nos.mkfifo('given'); os.mkdir('also')"
    )
    files = {"given": FileEntry(b"g"), "also": FileEntry(b"a")}
    begun = time.monotonic()
    outcome = attack((*PYTHON, code), CALM, keep=True, files=files)
    assert time.monotonic() - begun < 15
    types = {c.path: c.type for c in (*outcome.diff.created, *outcome.diff.changed)}
    assert types == {"fifo": "fifo", "socket": "socket", "result": "dir", "given": "fifo", "also": "dir"}
    assert outcome.snapshot is not None
    assert [outcome.snapshot.read(name) for name in types] == [None] * 5


def test_38_deep_folders_end_the_walk_and_not_the_verifier(attack: Callable[..., Outcome]) -> None:
    code = "import os\nfor n in range(10_000):\n  os.mkdir('d'); os.chdir('d')"
    limits = Limits(wall_s=20, cpu_s=10, inodes=20_000)
    begun = time.monotonic()
    outcome = attack((*PYTHON, code), limits, keep=True)
    assert time.monotonic() - begun < 20
    assert outcome.exit_code == 0
    assert not outcome.diff.complete
    assert len(outcome.diff.created) < 1000
    assert outcome.snapshot is None
    assert "no snapshot" in outcome.detail


NAMES = [
    b"n" * 255,
    b"new\nline",
    b"\xff\xfe",
    b"-rf",
    b"a\\x",
    b"\x1b[2J",
    b" ",
    b"\xe2\x80\xae",
    b"*",
    b"...",
    b"'\"",
]


def test_38b_names_of_every_kind(attack: Callable[..., Outcome]) -> None:
    code = f"for n in {NAMES!r}: open(n, 'wb').write(n)"
    outcome = attack((*PYTHON, code), CALM, keep=True)
    assert outcome.exit_code == 0, outcome
    assert len(outcome.diff.created) == len(NAMES)
    assert outcome.snapshot is not None
    for change in outcome.diff.created:
        change.path.encode()
        assert outcome.snapshot.read(change.path) is not None
    assert {outcome.snapshot.read(change.path) for change in outcome.diff.created} == set(NAMES)


def test_38c_paths_longer_than_any_call_takes(attack: Callable[..., Outcome]) -> None:
    code = "import os\nfor n in range(30):\n  os.mkdir('d' * 250); os.chdir('d' * 250)\nopen('f', 'w').write('x')"
    outcome = attack((*PYTHON, code), CALM, keep=True)
    assert outcome.exit_code == 0
    assert outcome.snapshot is None
    assert not outcome.diff.complete
    assert "no snapshot" in outcome.detail


NESTED = "import os\nn = 'd' * 250\nfor _ in range({folders}): os.mkdir(n); os.chdir(n)\nopen('f' * {name}, 'w').write('x')"


@pytest.mark.parametrize(
    ("folders", "name", "kept"),
    [(16, 79, True), (16, 80, False), (16, 200, False), (15, 255, True)],
    ids=["4095", "4096", "4216", "4020"],
)
def test_38e_a_path_is_in_a_snapshot_only_if_the_next_job_can_stand_on_it(
    slot: Slot, attack: Callable[..., Outcome], folders: int, name: int, *, kept: bool
) -> None:
    """A file's path counts like a folder's; what can be kept is laid out for a second job, which finds it."""
    outcome = attack((*PYTHON, NESTED.format(folders=folders, name=name)), CALM, keep=True)
    assert outcome.exit_code == 0
    assert (outcome.snapshot is not None, outcome.diff.complete) == (kept, kept)
    if outcome.snapshot is None:
        assert "no snapshot" in outcome.detail
        assert "too long" in outcome.detail
        return
    assert max(map(len, outcome.snapshot.tree)) == folders * 251 + name
    count = "import os; print(sum(len(f) for _, _, f in os.walk('.')))"
    after = slot.run(Job(argv=(*PYTHON, count), limits=CALM, base=outcome.snapshot))
    assert (after.cause, after.stdout) == ("exit", b"1\n"), after.detail


def test_38d_a_flood_of_files_is_bounded(attack: Callable[..., Outcome]) -> None:
    code = "for n in range(100_000): open(f'{n:0200}', 'w').close()"
    outcome = attack((*PYTHON, code), CALM)
    assert (outcome.cause, outcome.exit_code) == ("disk", 1)
    assert len(outcome.diff.created) < 2048 + 16


def test_41_deletions_are_seen_however_they_are_made(slot: Slot, attack: Callable[..., Outcome]) -> None:
    """200 deleted files, a folder replaced, one renamed over another: whiteouts, opaque folders, redirects; and forged ones."""
    files = {f"many/{n}": FileEntry(b"x") for n in range(200)}
    files |= {f"swap/{n}": FileEntry(b"x") for n in range(5)} | {
        "one": FileEntry(b"1"),
        "two": FileEntry(b"2"),
        "stays/a": FileEntry(b"a"),
        "stays/b": FileEntry(b"b"),
    }
    code = (
        "import os, shutil\nfor n in os.listdir('many'): os.unlink('many/' + n)\n"
        "shutil.rmtree('swap'); os.mkdir('swap'); open('swap/new', 'w').close(); os.rename('one', 'two')\n"
        "for name in ('opaque', 'redirect', 'metacopy', 'whiteout', 'origin', 'impure', 'nlink', 'overlay.opaque'):\n"
        "  for where in ('.', 'many', 'stays', 'stays/a', 'swap/new'):\n"
        "    for value in (b'y', b'x', b'/one', b''):\n"
        "      try: os.setxattr(where, 'user.overlay.' + name, value)\n      except OSError: pass"
    )
    outcome = attack((*PYTHON, code), CALM, keep=True, files=files)
    deleted = {change.path for change in outcome.diff.deleted}
    assert deleted == {*(f"many/{n}" for n in range(200)), *(f"swap/{n}" for n in range(5)), "one"}
    assert [change.path for change in outcome.diff.created] == ["swap/new"]
    assert [change.path for change in outcome.diff.changed] == ["two"]
    assert outcome.snapshot is not None
    left = {"many", "swap", "swap/new", "two", "stays", "stays/a", "stays/b"}
    assert set(outcome.snapshot.listing()) == left
    # The next job stands on the same: what the marks of the program's own would hide is there.
    after = slot.run(Job(argv=(*SHELL, "find * | sort; cat stays/a two"), limits=CALM, base=outcome.snapshot))
    assert after.stdout.decode() == "".join(f"{path}\n" for path in sorted(left)) + "a1"


def test_a_file_laid_out_is_never_the_one_of_another_job(slot: Slot, attack: Callable[..., Outcome]) -> None:
    """The same layer is laid out once for many jobs: what one does to its files, the next must not see."""
    files = {"shared": FileEntry(b"as given"), "d/x": FileEntry(b"1")}
    spoil = "import os\nopen('shared', 'w').write('spoilt'); os.chmod('shared', 0); os.rename('d', 'e'); os.chmod('.', 0o700)"
    for _ in range(2):
        attack((*PYTHON, spoil), CALM, files=files)
        after = slot.run(Job(argv=(*SHELL, "cat shared d/x; ls -A; stat -c %a . shared"), files=files))
        assert after.stdout == b"as given1d\nshared\n755\n644\n"
