"""What goes into the jail and what comes out.

Invariant: these are plain data. A `Job` that exists is well formed (checked on construction), and an `Outcome`
holds only facts recorded outside the jail: the program cannot write any field except the bytes of its own streams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from services.verifier.jail.snapshot import Snapshot
    from services.verifier.network import Allow

Cause = Literal["exit", "signal", "wall", "cpu", "memory", "pids", "output", "disk", "infra"]
MAX_ARGUMENT_BYTES = 128 * 1024  # the kernel's MAX_ARG_STRLEN, closing NUL included
MAX_TOTAL_BYTES = (
    1536 * 1024
)  # of argv and env together; execve takes a quarter of the 8 MiB stack, with pointers
MAX_STRINGS = 16_384
MAX_SECONDS = 86_400
MAX_NAME_BYTES = 255
MAX_PATH_PARTS = 64
MAX_PATH_BYTES = 4092  # with "/w/" before it, what a system call takes as a path


class JailUnavailable(RuntimeError):  # noqa: N818 (the name says what is the matter)
    """This machine cannot build the jail; the message is one line that says what is missing and what to do."""


class JobError(ValueError):
    """A job that can never run (malformed path, argument or limit); the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one job. Times in seconds, sizes in bytes; `output_bytes` holds for each stream by itself.

    `disk_bytes` and `inodes` bound all that the program writes: working folder, /tmp and /dev/shm together.
    `file_bytes` bounds one file (RLIMIT_FSIZE), `open_files` the descriptors of one process.
    """

    wall_s: float = 2.0
    cpu_s: float = 1.0
    memory_bytes: int = 128 << 20
    pids: int = 32
    output_bytes: int = 64 << 10
    disk_bytes: int = 16 << 20
    inodes: int = 2048
    open_files: int = 256
    file_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        for name in ("wall_s", "cpu_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 < value <= MAX_SECONDS):
                raise JobError(f"limit {name} is {value!r}: give seconds above 0 and at most 86400")
        least = {"memory_bytes": 4 << 20, "pids": 2, "disk_bytes": 64 << 10, "inodes": 16, "open_files": 8}
        for name in (
            "memory_bytes",
            "pids",
            "output_bytes",
            "disk_bytes",
            "inodes",
            "open_files",
            "file_bytes",
        ):
            value = getattr(self, name)
            if not least.get(name, 1) <= value < 1 << 50:
                raise JobError(
                    f"limit {name} is {value!r}: give a whole number of at least {least.get(name, 1)}"
                )


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file to lay out: its bytes and its permission bits."""

    content: bytes
    mode: int = 0o644


EMPTY: Mapping[str, FileEntry] = MappingProxyType({})
NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One command to run.

    `files` appear in the writable working folder /w, `trusted` read-only under /t. `base` starts /w from a snapshot
    (`files` are laid over it); `keep` asks for a snapshot of /w afterwards. `report` passes the program a pipe as
    descriptor 9 whose bytes come back as `Outcome.report`, apart from its output. `network` lets it reach the listed
    targets, through a proxy on its own loopback that the environment names; None is loopback only. `sealed`: /t can be read
    only by processes in the group that a program with a report begins in, so not by one that has left it. `offline`: no
    network, whatever the card lists. `reopen`: the standard streams may be opened again by name (/dev/stdout), as they never are
    of a program with a report; who opens one of its outputs to read waits for ever.
    """

    argv: tuple[str, ...]
    stdin: bytes = b""
    files: Mapping[str, FileEntry] = EMPTY
    trusted: Mapping[str, FileEntry] = EMPTY
    env: Mapping[str, str] = NO_ENV
    limits: Limits = field(default_factory=Limits)
    base: Snapshot | None = None
    keep: bool = False
    report: bool = False
    network: Allow | None = None
    sealed: bool = False
    offline: bool = False
    reopen: bool = True

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise JobError("the command is empty: give the program and its arguments")
        for files in (self.files, self.trusted):
            for path in files:
                check_path(path)
                if "/" in path and any(above in files for above in folders(path)):
                    raise JobError(f"file path {path!r}: a folder of it is given as a file too")
        for name in self.env:
            if not name or "=" in name:
                raise JobError(f"environment name {name!r}: it must not be empty or hold '='")
        total = 0
        for text in (*self.argv, *(f"{k}={v}" for k, v in self.env.items())):
            size = len(encode(text)) + 1
            total += size
            if "\0" in text:
                raise JobError(f"an argument or variable holds a NUL byte: {text[:40]!r}")
            if size > MAX_ARGUMENT_BYTES:
                raise JobError(f"an argument or variable has {size} bytes: at most {MAX_ARGUMENT_BYTES} fit")
        if total > MAX_TOTAL_BYTES or len(self.argv) + len(self.env) > MAX_STRINGS:
            raise JobError(f"arguments and environment take {total} bytes: at most {MAX_TOTAL_BYTES} fit")


def encode(text: str) -> bytes:
    """Text to bytes as the kernel takes it; undecodable bytes that came in as surrogates go back unchanged."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise JobError(f"text that cannot be encoded: {text[:40]!r}") from error


def folders(path: str) -> list[str]:
    """The folders above a relative path: "a/b/c" gives ["a", "a/b"]."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def check_path(path: str) -> None:
    """Raises JobError unless `path` is relative, stays beneath its folder (no empty part, '.', '..' or NUL) and can be named."""
    raw = encode(path)
    if len(raw) > MAX_PATH_BYTES:
        raise JobError(
            f"file path {path[:40]!r}... has {len(raw)} bytes: at most {MAX_PATH_BYTES} can be named"
        )
    parts = raw.split(b"/")
    if (
        any(part in (b"", b".", b"..") or len(part) > MAX_NAME_BYTES or b"\0" in part for part in parts)
        or len(parts) > MAX_PATH_PARTS
    ):
        raise JobError(f"file path {path!r}: give a relative path without empty parts, '.', '..' or NUL")


@dataclass(frozen=True, slots=True)
class Change:
    """One path of the working folder: type `file`, `dir`, `symlink`, `fifo`, `socket` or `device`.

    `digest` is the SHA-256 in hex of a file's bytes or of a link's target, and empty for anything else. `path` is to be shown;
    `raw` holds the bytes of one that is not UTF-8, which may be shown as another path is.
    """

    path: str
    type: str
    mode: int
    size: int
    digest: str
    raw: bytes = b""

    @property
    def key(self) -> str:
        """The path by which it is known: no other has it, and one that is UTF-8 has its text."""
        return self.raw.decode("utf-8", "surrogateescape") if self.raw else self.path


@dataclass(frozen=True, slots=True)
class Diff:
    """What the run changed in /w, each list sorted by path; `complete` is False when a cap cut the walk short."""

    created: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()
    deleted: tuple[Change, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The facts of one run.

    `cause` says why it ended; for `pids`, `disk` and `memory` the program's own `exit_code` or `signal` is given
    too when there was one. `infra` means that we failed: it says nothing about the program. `cpu_s` is that of the
    whole tree, the jail's own set-up (about 1 ms) included; `wall_s` is the program's alone. `peak_pids` counts the
    program's processes and threads, as the kernel does (before Linux 6.11 as they were when looked at). Of a stream
    past its limit head and tail are kept, with a line between them; `*_dropped` counts the bytes left out, and a
    report keeps its head only. `connections`: one line for each connection that was asked of the network proxy. `met`: the
    limits that were met, the cause or not (`verdict.met`).
    """

    cause: Cause
    exit_code: int | None = None
    signal: int | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    peak_pids: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    report: bytes = b""
    diff: Diff = field(default_factory=Diff)
    survivors: int = 0
    snapshot: Snapshot | None = None
    network: str = "none"
    connections: tuple[str, ...] = ()
    isolation: str = ""
    detail: str = ""
    met: tuple[Cause, ...] = ()


class Jail(Protocol):
    """Whatever runs jobs, one at a time, and never raises for what the program did."""

    def run(self, job: Job) -> Outcome:
        """Run one job to its end."""
        ...
