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
CALM = Limits(wall_s=60.0, cpu_s=10.0)
"""No row is about time, and one reads every folder there is: a cold disk took 10 s."""

# A helper for programs that expect a refusal: `refused(f, *a)` prints HOLE unless f fails with an error.
REFUSED = """
import os, sys, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, call):
    try:
        result = call()
    except (OSError, ValueError) as error:
        print(name, 'refused', error); return
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
        ("1 at all", "os.stat('/proc/1')"),
        ("descriptor of 1", "libc.syscall(438, os.pidfd_open(1, 0), 4, 0)"),
        ("prlimit", "libc.syscall(302, 1, 7, ctypes.create_string_buffer(bytes(16)), 0)"),
        (
            "move_pages",
            "libc.syscall(279, 1, 1, ctypes.create_string_buffer(8), 0, ctypes.create_string_buffer(8), 0)",
        ),
        ("process_madvise", "libc.syscall(440, os.pidfd_open(1, 0), 0, 0, 0, 0)"),
        ("seize", "libc.ptrace(0x4206, 1, 0, 0)"),
        ("trace me", "libc.ptrace(0, 0, 0, 0)"),
        ("signal by pidfd", "libc.syscall(424, os.pidfd_open(1, 0), 9, 0, 0)"),
        ("queue", "libc.syscall(129, 1, 9, ctypes.create_string_buffer(128))"),
    ),
    hostile(
        "25-kill-all",
        "import os,signal\nfor p in (1,-1,os.getppid()):\n  try: os.kill(p, signal.SIGTERM if p != -1 else signal.SIGURG)\n"
        "  except OSError: pass\nprint('end')",
    ),
    hostile(
        "25b-kill-init",
        "import os\nfor p in (1, os.getppid()):\n  for s in range(1, 65):\n    try: os.kill(p, s); print('HOLE')\n"
        "    except OSError: pass\nprint('alive')",
        says=b"alive",
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
        ("setdomainname", "libc.setdomainname(b'x',1)"),
        ("comm", "open('/proc/self/comm','w')"),
        ("pressure", "open('/proc/pressure/memory','w')"),
        ("setgroups", "open('/proc/self/setgroups','w')"),
        ("timens", "open('/proc/self/timens_offsets','w')"),
        ("ping range", "open('/proc/sys/net/ipv4/ping_group_range','w')"),
        ("port start", "open('/proc/sys/net/ipv4/ip_unprivileged_port_start','w')"),
        ("last pid", "open('/proc/sys/kernel/ns_last_pid','w')"),
        ("coredump filter", "open('/proc/self/coredump_filter','w')"),
        ("kcore", "open('/proc/kcore','rb')"),
        ("kmsg", "open('/proc/kmsg','rb')"),
        ("kpagecount", "open('/proc/kpagecount','rb')"),
    ),
    refusal(
        "28-namespaces",
        ("newuser", "libc.unshare(0x10000000)"),
        ("newns", "libc.unshare(0x20000)"),
        ("newnet", "libc.unshare(0x40000000)"),
        ("clone newuser", "libc.syscall(56, 0x10000000|17, 0, 0, 0, 0)"),
        ("clone newns", "libc.syscall(56, 0x20000|17, 0, 0, 0, 0)"),
        ("clone newpid", "libc.syscall(56, 0x20000000|17, 0, 0, 0, 0)"),
        ("clone newnet", "libc.syscall(56, 0x40000000|17, 0, 0, 0, 0)"),
        ("clone newcgroup", "libc.syscall(56, 0x2000000|17, 0, 0, 0, 0)"),
        ("unshare newtime", "libc.unshare(0x80)"),
        ("clone high bits", "libc.syscall(56, ctypes.c_ulong(0xffffffff10000011), 0, 0, 0, 0)"),
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
        ("open_tree_attr", "libc.syscall(467, -100, b'/', 1, 0, 0)"),
        ("move_mount", "libc.syscall(429, -100, b'/', -100, b'/tmp', 0)"),
        ("fsopen", "libc.syscall(430, b'tmpfs', 0)"),
        ("mount_setattr", "libc.syscall(442, -100, b'/', 0, 0, 0)"),
        ("umount w", "libc.umount2(b'/w', 2)"),
        ("umount proc", "libc.umount2(b'/proc', 2)"),
        ("what lies outside", "(os.fchdir(os.open('/', os.O_RDONLY)), os.stat('../.in/up'))"),
    ),
    refusal(
        "33-privilege",
        ("setuid", "os.setuid(0)"),
        ("setgid", "os.setgid(0)"),
        ("setgroups", "os.setgroups([0])"),
        ("su", "open('/etc/shadow')"),
        ("chown", "(open('c','w').close(), os.chown('c',0,0))"),
        ("chown to the init", "os.chown('c',1001,1001)"),
        ("setresuid to the init", "os.setresuid(1001,1001,1001)"),
        (
            "capset",
            "libc.capset((ctypes.c_uint32*2)(0x20080522,0), (ctypes.c_uint32*6)(1<<21,1<<21,0,0,0,0))",
        ),
        ("ambient", "libc.prctl(47, 2, 21, 0, 0)"),
        ("securebits", "libc.prctl(28, 1, 0, 0, 0)"),
        ("new privileges", "libc.prctl(38, 0, 0, 0, 0)"),
        ("no filter", "libc.prctl(22, 0, 0, 0, 0)"),
        ("iopl", "libc.iopl(3)"),
        ("ioperm", "libc.ioperm(0x80, 1, 1)"),
    ),
    hostile(
        "33c-setuid-programs-of-the-system",
        "grep -q ' /usr ro,nosuid,nodev' /proc/self/mountinfo || echo HOLE; su -c 'echo HOLE' </dev/null;"
        "for s in /usr/bin/*; do test -u $s && timeout 1 $s --version </dev/null >/dev/null 2>&1; done; id -u; echo end",
        argv=SHELL,
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
        "43c-other-families",
        "import socket, ctypes\nl=ctypes.CDLL(None,use_errno=True)\nfor family in range(1, 60):\n"
        "  for kind in (1, 2, 3, 5):\n    fd=l.socket(family, kind, 0)\n"
        "    if fd >= 0: assert family in (1, 2, 10, 16), ('HOLE', family)\n"
        "def no(*a):\n  try: socket.socket(*a); print('HOLE', a)\n  except OSError: pass\n"
        "no(2, 3, 1); no(10, 3, 58); no(2, 1, 132); no(2, 5, 132); no(2, 6, 33); no(2, 2, 115); no(2, 10, 3)\nprint('end')",
    ),
    hostile(
        "43d-no-way-out",
        "import fcntl, socket, struct\n"
        "def no(f, target, *kind):\n  s=socket.socket(*kind); s.settimeout(0.5)\n"
        "  try: f(s, target); print('HOLE', target)\n  except OSError as e: print(e.errno)\n"
        "for t in (('10.0.0.1', 80), ('169.254.169.254', 80), ('192.168.0.1', 22), ('255.255.255.255', 1), ('224.0.0.1', 1)):\n"
        "  no(lambda s, t: s.connect(t), t, 2, 1); no(lambda s, t: s.sendto(b'x', t), t, 2, 2)\n"
        "for t in (('fe80::1', 80), ('ff02::1', 80), ('2001:db8::1', 80)):\n  no(lambda s, t: s.sendto(b'x', t), t, 10, 2)\n"
        "for m in (0x8914, 0x8916, 0x891c, 0x8924, 0x89f0):\n"
        "  try: fcntl.ioctl(socket.socket(2, 2), m, b'lo'.ljust(40, bytes(1))); print('HOLE', m)\n"
        "  except OSError: pass\n"
        "n=socket.socket(16, 3, 0); n.bind((0, 0))\n"
        "n.send(struct.pack('=IHHII', 32, 16, 0x605, 1, 0) + struct.pack('=BxHiII', 0, 0, 1, 0, 1))\n"
        "e=struct.unpack_from('=i', n.recv(4096), 16)[0]; print('HOLE' if e >= 0 else 'refused', e)\nprint('end')",
    ),
    hostile(
        "42b-no-socket-files",
        "import os, stat\nfor top, folders, names in os.walk('/'):\n  if top.startswith('/proc'): folders.clear(); continue\n"
        "  for n in names:\n    m=os.lstat(os.path.join(top, n)).st_mode\n"
        "    if stat.S_ISSOCK(m) or stat.S_ISFIFO(m) or stat.S_ISBLK(m): print('HOLE', top, n)\nprint('end')",
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
    refusal(
        "47b-terminal-tricks",
        ("tiocsti", "__import__('fcntl').ioctl(0, 0x5412, b'x')"),
        ("tioclinux", "__import__('fcntl').ioctl(0, 0x541c, b'\\3')"),
        ("tiocsctty", "__import__('fcntl').ioctl(0, 0x540e, 1)"),
        ("ptmx", "os.open('/dev/ptmx', 2)"),
        ("pty", "os.openpty()"),
        ("console", "os.open('/dev/console', 2)"),
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
        ("ioprio real time", "libc.syscall(251, 1, 0, 1 << 13)"),
        (
            "deadline",
            "libc.syscall(314, 0, __import__('struct').pack('=IIQiIQQQ', 48, 6, 0, 0, 0, 10**6, 10**7, 10**7), 0)",
        ),
        ("mlock", "libc.mlock(ctypes.create_string_buffer(1 << 20), 1 << 20)"),
        ("oom", "open('/proc/self/oom_score_adj','w')"),
        ("rlimit", "__import__('resource').setrlimit(7, (99999, 99999))"),
    ),
]


@pytest.mark.parametrize(("argv", "says"), ESCAPES)
def test_refused(attack: Callable[..., Outcome], argv: tuple[str, ...], says: bytes) -> None:
    outcome = attack(argv, CALM)
    assert (outcome.cause, outcome.exit_code) == ("exit", 0), outcome
    assert b"HOLE" not in outcome.stdout, outcome.stdout.decode()
    assert says in outcome.stdout
