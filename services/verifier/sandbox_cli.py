"""`temper sandbox run`: one command in the jail, from the command line.

Invariant: with --json exactly one JSON document goes to standard output and everything else to standard error. Exit
status 0 when the command was run (whatever it did), 2 for wrong use, 3 when the jail is not available or failed.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from services.runtime.blobs import BlobError, Blobs
from services.verifier.jail import (
    FileEntry,
    JailUnavailable,
    Job,
    JobError,
    Limits,
    Outcome,
    Slot,
    Snapshot,
    SnapshotError,
    probe,
)
from services.verifier.jail.numbers import reserve
from services.verifier.jail.snapshot import load, save
from services.verifier.jail.storage import HOME
from services.verifier.jail.syscalls import open_beneath
from services.verifier.network import AllowError, network
from services.verifier.sandbox_report import document, human

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
DEFAULTS = Limits(wall_s=10.0, cpu_s=10.0)
MAX_STDIN_BYTES = 64 << 20
MAX_FILES = 20_000
MAX_FILE_BYTES = 256 << 20


class UsageError(ValueError):
    """Wrong use of the command; the message is one line."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def size(text: str) -> int:
    """Bytes of `65536`, `64K`, `128MiB`, `1.5G`. Raises argparse.ArgumentTypeError."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write for example 64K, 128M or 1G")
    return math.ceil(float(match[1]) * UNITS[match[2].upper()])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `temper sandbox run`."""
    parser.add_argument(
        "--wall", type=float, metavar="S", default=DEFAULTS.wall_s, help="wall clock, seconds"
    )
    parser.add_argument(
        "--cpu", type=float, metavar="S", help="CPU seconds of the whole tree (default: as --wall)"
    )
    parser.add_argument("--memory", type=size, metavar="SIZE", default=DEFAULTS.memory_bytes)
    parser.add_argument("--pids", type=int, metavar="N", default=DEFAULTS.pids, help="processes and threads")
    parser.add_argument(
        "--output", type=size, metavar="SIZE", default=DEFAULTS.output_bytes, help="of each stream"
    )
    parser.add_argument(
        "--disk", type=size, metavar="SIZE", default=DEFAULTS.disk_bytes, help="all that it writes"
    )
    parser.add_argument(
        "--inodes", type=int, metavar="N", default=DEFAULTS.inodes, help="files and folders that it makes"
    )
    parser.add_argument(
        "--open-files", type=int, metavar="N", default=DEFAULTS.open_files, help="of one process"
    )
    parser.add_argument(
        "--network",
        default="none",
        metavar="none|allow:HOST:PORT[,...]",
        help="loopback only (the default), or a proxy to these targets of the public internet",
    )
    parser.add_argument("--files", type=Path, metavar="DIR", help="copy this folder into the working folder")
    parser.add_argument("--stdin", type=Path, metavar="FILE", help="standard input (default: empty)")
    parser.add_argument("--snapshot", metavar="ID", help="start from the files an earlier run left")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the command and its arguments"
    )


def main(args: argparse.Namespace) -> int:
    """Run the command described by the parsed arguments; returns the exit status."""
    try:
        blobs = Blobs(blob_address())
        job = build_job(args, blobs)
        outcome = run_once(job)
        snapshot_id = save(outcome.snapshot, blobs) if outcome.snapshot is not None else None
    except (UsageError, JobError, SnapshotError, AllowError) as error:
        sys.stderr.write(f"temper sandbox run: {error}\n")
        return 2
    except (JailUnavailable, BlobError, OSError) as error:
        sys.stderr.write(f"temper sandbox run: {error}\n")
        return 3
    for name in outcome.snapshot.dropped if outcome.snapshot is not None else ():
        sys.stderr.write(f"temper sandbox run: not kept in the snapshot: {name}\n")
    if args.json:
        sys.stdout.write(msgspec.json.encode(document(outcome, snapshot_id)).decode() + "\n")
    else:
        sys.stdout.write(human(outcome, snapshot_id))
    sys.stdout.flush()
    return 3 if outcome.cause == "infra" else 0


def blob_address() -> str:
    """Where snapshots are kept between runs: a folder or an fsspec address."""
    return os.environ.get("TEMPER_BLOBS") or str(Path(".temper") / "blobs")


def build_job(args: argparse.Namespace, blobs: Blobs) -> Job:
    """The job of the parsed arguments. Raises UsageError, JobError, AllowError, SnapshotError or BlobError."""
    allow = network(args.network)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    limits = Limits(
        wall_s=args.wall,
        cpu_s=args.cpu if args.cpu is not None else args.wall,
        memory_bytes=args.memory,
        pids=args.pids,
        output_bytes=args.output,
        disk_bytes=args.disk,
        inodes=args.inodes,
        open_files=args.open_files,
        file_bytes=args.disk + (1 << 20),  # so that a full disk is met first
    )
    base: Snapshot | None = load(args.snapshot, blobs) if args.snapshot is not None else None
    files = read_folder(args.files) if args.files is not None else {}
    return Job(
        argv=tuple(command),
        stdin=read_stdin(args.stdin),
        files=files,
        limits=limits,
        base=base,
        keep=True,
        network=allow,
    )


def read_stdin(path: Path | None) -> bytes:
    """Bytes of the file given with --stdin. Raises UsageError."""
    if path is None:
        return b""
    try:
        with path.open("rb") as source:
            data = source.read(MAX_STDIN_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--stdin {path}: {error.strerror}") from error
    if len(data) > MAX_STDIN_BYTES:
        raise UsageError(f"--stdin {path}: more than {MAX_STDIN_BYTES} bytes")
    return data


def read_folder(top: Path) -> Mapping[str, FileEntry]:
    """Regular files below `top`; links and special files are refused, because a copy would not be what they are."""
    files: dict[str, FileEntry] = {}
    total = 0
    if not top.is_dir():
        raise UsageError(f"--files {top}: not a folder")
    for here, folders, names, fd in os.fwalk(top, follow_symlinks=False, onerror=_unreadable):
        folders.sort()
        for name in [*sorted(names), *(n for n in folders if (Path(here) / n).is_symlink())]:
            path = os.fspath((Path(here) / name).relative_to(top))
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISREG(info.st_mode):
                raise UsageError(f"--files {top}: {path!r} is not a regular file; only those can be given")
            total += info.st_size
            if len(files) >= MAX_FILES or total > MAX_FILE_BYTES:
                raise UsageError(f"--files {top}: more than {MAX_FILES} files or {MAX_FILE_BYTES} bytes")
            handle = open_beneath(fd, os.fsencode(name), os.O_RDONLY)
            with os.fdopen(handle, "rb") as source:
                files[path] = FileEntry(source.read(), stat.S_IMODE(info.st_mode) & 0o777)
    return files


def _unreadable(error: OSError) -> NoReturn:
    raise UsageError(f"--files: {error.filename!r} cannot be read: {error.strerror}") from error


def run_once(job: Job) -> Outcome:
    """Run in a slot of its own. Raises JailUnavailable when there can be none."""
    host = probe()
    reserved = reserve(1)
    try:
        # In HOME, where `sweep` finds what is left of us if we are killed meanwhile.
        with Slot(f"temper-cli-{os.getpid()}-{reserved.numbers[0]}", HOME, host) as slot:
            return slot.run(job)
    finally:
        reserved.close()
