"""Programs that try to leave the jail or to reach what is not theirs: each attempt is refused.

A program prints HOLE when an attempt succeeds, and `end` when it has tried everything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from services.verifier.jail import Limits, Outcome

pytestmark = pytest.mark.hostile
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")
SHELL = ("/bin/sh", "-c")
CALM = Limits(wall_s=10.0, cpu_s=5.0)

# A helper for programs that expect a refusal: `refused(f, *a)` prints HOLE unless f fails with an error.
REFUSED = """
import os, sys, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, call):
    try:
        result = call()
    except (OSError, PermissionError) as error:
        print(name, 'refused', error.errno); return
    if isinstance(result, int) and result == -1 and ctypes.get_errno():
        print(name, 'refused', ctypes.get_errno()); return
    print(name, 'HOLE', result)
"""


def hostile(name: str, code: str, says: bytes = b"end", argv: tuple[str, ...] = PYTHON) -> object:
    """One row: the program and what it must print."""
    return pytest.param((*argv, code), says, id=name)


def refusal(name: str, *calls: tuple[str, str]) -> object:
    """A program that makes calls which must all fail."""
    lines = "".join(f"refused({what!r}, lambda: {call})\n" for what, call in calls)
    return hostile(name, REFUSED + lines + "print('end')")


ESCAPES = [
    hostile("20-daemon", "setsid sleep 60 & echo started", says=b"started", argv=SHELL),
    hostile(
        "20b-double-fork",
        "import os,time\nif not os.fork():\n  os.setsid()\n  if not os.fork(): time.sleep(60)\n  os._exit(0)\nprint('end')",
    ),
    refusal(
        "24-other-processes",
        ("ptrace", "libc.ptrace(16, 1, 0, 0)"),
        ("process_vm_readv", "libc.syscall(310, 1, 0, 0, 0, 0, 0)"),
        ("process_vm_writev", "libc.syscall(311, 1, 0, 0, 0, 0, 0)"),
        ("pidfd_getfd", "libc.syscall(438, os.pidfd_open(1), 7, 0)"),
        ("fds of 1", "os.listdir('/proc/1/fd')"),
        ("mem of 1", "open('/proc/1/mem','rb')"),
    ),
    hostile(
        "25-kill-all",
        "import os,signal\nfor p in (1,-1,os.getppid()):\n  try: os.kill(p, signal.SIGTERM if p != -1 else signal.SIGURG)\n"
        "  except OSError: pass\nprint('end')",
    ),
    hostile(
        "25b-kill-init", "import os\nos.kill(1,9); os.kill(os.getppid(),9); print('alive')", says=b"alive"
    ),
    refusal(
        "27-kernel-settings",
        ("oom", "open('/proc/self/oom_score_adj','w')"),
        ("sys", "open('/proc/sys/kernel/hostname','w')"),
        ("core", "open('/proc/sys/kernel/core_pattern','w')"),
        ("sysrq", "open('/proc/sysrq-trigger','w')"),
        ("uid_map", "open('/proc/self/uid_map','w')"),
        ("cgroup", "os.mkdir('/sys/fs/cgroup/x')"),
        ("sethostname", "libc.sethostname(b'x',1)"),
    ),
    refusal(
        "28-namespaces",
        ("newuser", "libc.unshare(0x10000000)"),
        ("newns", "libc.unshare(0x20000)"),
        ("newnet", "libc.unshare(0x40000000)"),
        ("clone newuser", "libc.syscall(56, 0x10000000|17, 0, 0, 0, 0)"),
        ("setns", "libc.setns(os.open('/proc/self/ns/net',0), 0)"),
        ("clone3", "libc.syscall(435, ctypes.create_string_buffer(88), 88)"),
    ),
    refusal("30b-x32", ("x32 getpid", "libc.syscall(0x40000000+39)")),
    refusal(
        "31-io-uring",
        ("setup", "libc.syscall(425, 8, ctypes.create_string_buffer(256))"),
        ("enter", "libc.syscall(426, 0, 1, 0, 0, 0)"),
        ("register", "libc.syscall(427, 0, 0, 0, 0)"),
    ),
    refusal(
        "32-mounts",
        ("mount", "libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0)"),
        ("remount", "libc.mount(b'none', b'/usr', 0, 32|4096, 0)"),
        ("umount", "libc.umount2(b'/usr', 2)"),
        ("pivot_root", "libc.syscall(155, b'.', b'.')"),
        ("chroot", "os.chroot('/tmp')"),
        ("open_tree", "libc.syscall(428, -100, b'/', 1)"),
        ("move_mount", "libc.syscall(429, -100, b'/', -100, b'/tmp', 0)"),
        ("fsopen", "libc.syscall(430, b'tmpfs', 0)"),
        ("mount_setattr", "libc.syscall(442, -100, b'/', 0, 0, 0)"),
    ),
    refusal(
        "33-privilege",
        ("setuid", "os.setuid(0)"),
        ("setgid", "os.setgid(0)"),
        ("setgroups", "os.setgroups([0])"),
        ("su", "open('/etc/shadow')"),
        ("chown", "(open('c','w').close(), os.chown('c',0,0))"),
    ),
    hostile("33b-setuid-binary", "cp /bin/sh s && chmod 4755 s && ./s -c 'id -u'", says=b"1000", argv=SHELL),
    refusal(
        "34-devices",
        ("block", "os.mknod('b', 0o60666, os.makedev(254,0))"),
        ("mem", "os.mknod('m', 0o20666, os.makedev(1,1))"),
        ("whiteout", "os.mknod('wh', 0o20666, 0)"),
        ("vda", "open('/dev/vda','rb')"),
        ("tty", "open('/dev/tty')"),
        ("new device file", "open('/dev/x','w')"),
    ),
    refusal(
        "35-read-only",
        ("usr", "open('/usr/x','w')"),
        ("root", "open('/x','w')"),
        ("trusted", "open('/t/x','w')"),
        ("init", "open('/.init','r+')"),
        ("etc", "open('/etc/passwd','a')"),
        ("chmod", "os.chmod('/etc/passwd', 0o777)"),
    ),
    refusal(
        "36-host-files",
        ("shadow", "open('/etc/shadow')"),
        ("home", "os.listdir('/root')"),
        ("var", "os.listdir('/var')"),
        ("run", "os.listdir('/run')"),
        ("sys", "os.listdir('/sys')"),
        ("boot", "os.listdir('/boot')"),
        ("root of 1", "os.listdir('/proc/1/root')"),
        ("dot dot", "os.stat('../../../../../../etc/shadow')"),
        ("handle", "libc.syscall(304, -100, ctypes.create_string_buffer(64), 0)"),
    ),
    refusal(
        "41-overlay-attributes",
        ("trusted opaque", "os.setxattr('.', 'trusted.overlay.opaque', b'y')"),
        ("capability", "(open('q','w').close(), os.setxattr('q', 'security.capability', bytes(20)))"),
    ),
    hostile(
        "43-network",
        "import socket\n"
        "def no(f, *a):\n"
        "  try: s=socket.socket(*a[:2]); s.settimeout(1); f(s); print('HOLE', a)\n"
        "  except OSError as e: print('refused', e)\n"
        "A=socket\n"
        "no(lambda s: s.connect(('1.1.1.1',53)), A.AF_INET, A.SOCK_STREAM)\n"
        "no(lambda s: s.sendto(b'x',('1.1.1.1',53)), A.AF_INET, A.SOCK_DGRAM)\n"
        "no(lambda s: s.connect(('2606:4700:4700::1111',53)), A.AF_INET6, A.SOCK_STREAM)\n"
        "no(lambda s: s.connect(('169.254.169.254',80)), A.AF_INET, A.SOCK_STREAM)\n"
        "no(lambda s: s.send(b''), A.AF_INET, A.SOCK_RAW)\n"
        "for family in (17, 38, 40, 40 | 1 << 32, 38 | 1 << 32):\n"
        "  import ctypes; l=ctypes.CDLL(None, use_errno=True)\n"
        "  for kind in (1, 2, 3, 5):\n"
        "    r=l.syscall(41, ctypes.c_ulong(family), kind, 0)\n"
        "    print('HOLE' if r>=0 else 'refused', family, kind, r, ctypes.get_errno())\n"
        "try: A.getaddrinfo('example.com', 80); print('HOLE dns')\nexcept OSError: print('end')",
    ),
    hostile(
        "43b-loopback-works",
        "import socket\na=socket.create_server(('127.0.0.1',0)); b=socket.create_connection(a.getsockname()); print('end')",
    ),
    hostile(
        "42-abstract-sockets",
        "import socket\nprint(open('/proc/net/unix').read().count('\\n'), 'line')",
        says=b"1 line",
    ),
    refusal(
        "45-keys-and-bpf",
        ("add_key", "libc.syscall(248, b'user', b'x', b'y', 1, -3)"),
        ("request_key", "libc.syscall(249, b'user', b'x', 0, -3)"),
        ("keyctl", "libc.syscall(250, 0, -3, 0)"),
        ("bpf", "libc.syscall(321, 0, 0, 0)"),
        ("perf", "libc.syscall(298, 0, 0, 0, 0, 0)"),
        ("userfaultfd", "libc.syscall(323, 0)"),
        ("syslog", "libc.syscall(103, 3, 0, 0)"),
        ("kexec", "libc.syscall(246, 0, 0, 0, 0)"),
        ("init_module", "libc.syscall(175, 0, 0, b'')"),
        ("swapon", "libc.syscall(167, b'x', 0)"),
        ("reboot", "libc.syscall(169, 0xfee1dead, 672274793, 0x1234567, 0)"),
    ),
    refusal(
        "49-clock",
        ("settimeofday", "libc.settimeofday(ctypes.create_string_buffer(16), 0)"),
        ("clock_settime", "libc.clock_settime(0, ctypes.create_string_buffer(16))"),
        ("adjtimex", "libc.adjtimex(ctypes.create_string_buffer(b'\\1'+bytes(300)))"),
    ),
    hostile(
        "47-no-terminal",
        "import os\ntry: os.open('/dev/tty',2); print('HOLE')\nexcept OSError: print(os.isatty(0))",
        says=b"False",
    ),
    hostile(
        "descriptors", "import os\nprint(sorted(os.listdir('/proc/self/fd')))", says=b"['0', '1', '2', '3']"
    ),
    hostile(
        "environment",
        "import os\nprint(sorted(os.environ))",
        says=b"['HOME', 'LC_ALL', 'PATH', 'PYTHONDONTWRITEBYTECODE', "
        b"'PYTHONHASHSEED', 'TMPDIR', 'TZ', 'USER']",
    ),
    refusal(
        "18-priority",
        ("nice", "os.nice(-5)"),
        ("fifo", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"),
        ("rr", "os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"),
    ),
]


@pytest.mark.parametrize(("argv", "says"), ESCAPES)
def test_refused(attack: Callable[..., Outcome], argv: tuple[str, ...], says: bytes) -> None:
    outcome = attack(argv, CALM)
    assert (outcome.cause, outcome.exit_code) == ("exit", 0), outcome
    assert b"HOLE" not in outcome.stdout, outcome.stdout.decode()
    assert says in outcome.stdout
