"""Runs in the jail: prints, as sorted JSON lines, everything that an earlier job could have left for this one to find.

Nothing here may differ between the first job of a slot and any later one, so what the kernel shares with the whole
machine (loads, global counters, ids of mounts) is left out, and nothing else.
"""

# A script for the system's Python, on a few lines a question.
# ruff: noqa: PGH004
# ruff: noqa
# mypy: ignore-errors
import ctypes
import json
import os
import pathlib
import resource
import socket
import stat
import sys

FOUND = {}
libc = ctypes.CDLL(None, use_errno=True)


def note(name, call):
    try:
        FOUND[name] = call()
    except OSError as error:
        FOUND[name] = f"errno {error.errno}"


def lines(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


def tree(top):
    rows = []
    for here, folders, names in os.walk(top):
        for name in sorted(folders + names):
            path = os.path.join(here, name)
            info = os.lstat(path)
            rows.append([path, oct(info.st_mode), info.st_uid, info.st_gid, info.st_size, info.st_nlink])
    return sorted(rows)


def fresh(folder):
    """What a new file gets here: its inode, and what room is left beside it."""
    path = os.path.join(folder, "fresh")
    with open(path, "x", encoding="ascii") as file:
        inode = os.fstat(file.fileno()).st_ino
    room = os.statvfs(folder)
    os.unlink(path)
    return [inode, room.f_blocks, room.f_bfree, room.f_files, room.f_ffree, os.listxattr(folder)]


def mounts():
    rows = []
    for line in lines("/proc/self/mountinfo"):
        fields = line.split()
        after = fields.index("-")
        rows.append([fields[3], fields[4], fields[5], fields[6:after], fields[after + 1 :]])
    return rows


def status():
    kept = ("Umask", "Tgid", "Ngid", "Pid", "PPid", "TracerPid", "Uid", "Gid", "Groups", "NStgid", "NSpid", "NSpgid",
            "NSsid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff",
            "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "CoreDumping", "THP_enabled")  # fmt: skip
    return [line for line in lines("/proc/self/status") if line.split(":")[0] in kept]


def counters(path):
    """Rows "Name: titles" and "Name: values" in turn."""
    rows = [line.split() for line in lines(path)]
    return [
        [t[0], name, value]
        for t, v in zip(rows[::2], rows[1::2])
        for name, value in zip(t[1:], v[1:])
        if value != "0"
    ]


def sockets():
    """Without what counts the sockets and pages of the whole machine."""
    own = {"inuse", "orphan", "tw", "used"}
    rows = []
    for path in ("/proc/net/sockstat", "/proc/net/sockstat6"):
        for line in lines(path):
            name, *fields = line.split()
            rows.append(
                [name, [[k, v] for k, v in zip(fields[::2], fields[1::2]) if k in own and k != "orphan"]]
            )
    return rows


def table(path):
    return lines(path)[1:]


def new_ids():
    """The first ids that this IPC namespace gives out."""
    shm = libc.shmget(0, 4096, 0o1600)
    sem = libc.semget(0, 1, 0o1600)
    msg = libc.msgget(0, 0o1600)
    return [shm, sem, msg, *(len(table(f"/proc/sysvipc/{kind}")) for kind in ("shm", "sem", "msg"))]


def queue():
    mq = ctypes.CDLL("librt.so.1", use_errno=True).mq_open
    return mq(b"/look", 0o100 | os.O_RDWR, 0o600, None) >= 0


def abstract():
    """Whether a name that the hostile jobs take is free."""
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind("\0temper-left-behind")
    with socket.create_server(("127.0.0.1", 47_123)):
        pass
    return "free"


for top in ("/w", "/tmp", "/dev/shm", "/t", "/etc", "/dev", "/.in"):
    note(f"tree {top}", lambda top=top: tree(top))
for top in ("/w", "/tmp", "/dev/shm"):
    note(f"fresh {top}", lambda top=top: fresh(top))
note("root", lambda: sorted(os.listdir("/")))
note("mounts", mounts)
note("status", status)
for kind in ("shm", "sem", "msg"):
    note(f"sysv {kind}", lambda kind=kind: table(f"/proc/sysvipc/{kind}"))
for name in (
    "tcp",
    "tcp6",
    "udp",
    "udp6",
    "udplite",
    "raw",
    "raw6",
    "unix",
    "netlink",
    "packet",
    "route",
    "igmp",
    "arp",
):
    note(
        f"net {name}",
        lambda name=name: [line.split()[name == "netlink" : 4] for line in table(f"/proc/net/{name}")],
    )
note("net devices", lambda: [line.split() for line in lines("/proc/net/dev")[2:]])
note("net counters", lambda: counters("/proc/net/snmp") + counters("/proc/net/netstat"))
note("net sockets", sockets)
note("new ids", new_ids)
note("queue", queue)
note("abstract", abstract)
note("processes", lambda: sorted(name for name in os.listdir("/proc") if name.isdigit()))
note("environment", lambda: sorted(os.environ.items()))
note("cgroup", lambda: lines("/proc/self/cgroup"))
note("cgroup files", lambda: os.listdir("/sys"))
note(
    "limits",
    lambda: [
        [name, resource.getrlimit(getattr(resource, name))]
        for name in dir(resource)
        if name.startswith("RLIMIT")
    ],
)
note("keys", lambda: lines("/proc/keys"))
note("key users", lambda: [line.split()[0] for line in lines("/proc/key-users")])
note(
    "ids",
    lambda: [
        os.getresuid(),
        os.getresgid(),
        os.getgroups(),
        os.getpid(),
        os.getppid(),
        os.getsid(0),
        os.getpgrp(),
    ],
)
note(
    "scheduling",
    lambda: [
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getscheduler(0),
        len(os.sched_getaffinity(0)),
        libc.syscall(252, 1, 0),
    ],
)
note("personality", lambda: libc.personality(ctypes.c_ulong(0xFFFFFFFF)))
note("prctl", lambda: [libc.prctl(what, 0, 0, 0, 0) for what in (3, 7, 27, 30, 39, 42)])
note("itimers", lambda: [__import__("signal").getitimer(which) for which in (0, 1, 2)])
note("oom", lambda: lines("/proc/self/oom_score_adj"))
note("name", lambda: list(os.uname()))
note("cwd", os.getcwd)
note(
    "descriptors",
    lambda: [
        [fd, stat.S_IFMT(os.fstat(int(fd)).st_mode)]
        for fd in sorted(os.listdir("/proc/self/fd"))
        if int(fd) < 3
    ],
)
note("namespaces", lambda: sorted(os.listdir("/proc/self/ns")))
note("locks", lambda: len(lines("/proc/locks")))
for name in ("kernel/hostname", "kernel/domainname", "kernel/shmmax", "kernel/msgmax", "fs/mqueue/msg_max", "net/ipv4/ip_forward",
             "net/ipv4/ip_unprivileged_port_start", "net/core/somaxconn", "net/ipv4/tcp_syncookies", "user/max_user_namespaces"):  # fmt: skip
    note(f"setting {name}", lambda name=name: lines(f"/proc/sys/{name}"))
sys.stdout.write("".join(f"{json.dumps([name, FOUND[name]])}\n" for name in sorted(FOUND)))
