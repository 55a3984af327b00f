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
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

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
from services.verifier.jail.snapshot import load, save
from services.verifier.jail.syscalls import open_beneath

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
DEFAULTS = Limits(wall_s=10.0, cpu_s=10.0)
MAX_FILES = 20_000
MAX_FILE_BYTES = 256 << 20
MAX_SLOTS = 64


class UsageError(ValueError):
    """Wrong use of the command; the message is one line."""


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
    parser.add_argument("--network", default="none", metavar="none", help="loopback only")
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
        folder = blob_folder()
        job = build_job(args, folder)
        outcome = run_once(job)
        snapshot_id = save(outcome.snapshot, folder) if outcome.snapshot is not None else None
    except (UsageError, JobError, SnapshotError) as error:
        sys.stderr.write(f"temper sandbox run: {error}\n")
        return 2
    except (JailUnavailable, OSError) as error:
        sys.stderr.write(f"temper sandbox run: {error}\n")
        return 3
    if args.json:
        sys.stdout.write(msgspec.json.encode(document(outcome, snapshot_id)).decode() + "\n")
    else:
        sys.stdout.write(human(outcome, snapshot_id))
    sys.stdout.flush()
    return 3 if outcome.cause == "infra" else 0


def blob_folder() -> Path:
    """Where snapshots are kept between runs."""
    return Path(os.environ.get("TEMPER_BLOBS") or Path(".temper") / "blobs")


def build_job(args: argparse.Namespace, folder: Path) -> Job:
    """The job of the parsed arguments. Raises UsageError, JobError or SnapshotError."""
    if args.network != "none":
        raise UsageError(f"--network {args.network}: only 'none' is supported; the jail has loopback only")
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    limits = Limits(
        wall_s=args.wall,
        cpu_s=args.cpu if args.cpu is not None else args.wall,
        memory_bytes=args.memory,
        pids=args.pids,
        output_bytes=args.output,
        disk_bytes=args.disk,
        file_bytes=args.disk + (1 << 20),  # so that a full disk is met first
    )
    base: Snapshot | None = load(args.snapshot, folder) if args.snapshot else None
    files = read_folder(args.files) if args.files is not None else {}
    return Job(
        argv=tuple(command), stdin=read_stdin(args.stdin), files=files, limits=limits, base=base, keep=True
    )


def read_stdin(path: Path | None) -> bytes:
    """Bytes of the file given with --stdin. Raises UsageError."""
    if path is None:
        return b""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"--stdin {path}: {error.strerror}") from error


def read_folder(top: Path) -> Mapping[str, FileEntry]:
    """Regular files below `top`; links and special files are refused, because a copy would not be what they are."""
    files: dict[str, FileEntry] = {}
    total = 0
    if not top.is_dir():
        raise UsageError(f"--files {top}: not a folder")
    for here, folders, names, fd in os.fwalk(top, follow_symlinks=False):
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


def run_once(job: Job) -> Outcome:
    """Run in the first slot that is free. Raises JailUnavailable when none is."""
    host = probe()
    with tempfile.TemporaryDirectory(prefix="temper-sandbox-") as folder:
        for number in range(MAX_SLOTS):
            try:
                slot = Slot(f"temper-cli-{number}", Path(folder), host, wait_s=0)
            except JailUnavailable:
                if number == MAX_SLOTS - 1:
                    raise
                continue
            with slot:
                return slot.run(job)
    raise JailUnavailable("no free slot")


def text(data: bytes) -> str:
    """Bytes as text; what is not UTF-8 is replaced."""
    return data.decode("utf-8", "replace")


def document(outcome: Outcome, snapshot_id: str | None) -> dict[str, Any]:
    """The fields that the design promises for `sandbox run --json`."""
    return {
        "cause": outcome.cause,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "wall_s": outcome.wall_s,
        "cpu_s": outcome.cpu_s,
        "peak_memory_bytes": outcome.peak_memory_bytes,
        "stdout": text(outcome.stdout),
        "stderr": text(outcome.stderr),
        "stdout_truncated": outcome.stdout_truncated,
        "stderr_truncated": outcome.stderr_truncated,
        "diff": {
            "created": list(outcome.diff.created),
            "changed": list(outcome.diff.changed),
            "deleted": list(outcome.diff.deleted),
        },
        "survivors": outcome.survivors,
        "snapshot": snapshot_id,
        "network": outcome.network,
        "isolation": outcome.isolation,
        "detail": outcome.detail,
    }


def human(outcome: Outcome, snapshot_id: str | None) -> str:
    """The same for people: what the program printed, then a few lines about the run."""
    how = {"exit": f"exit {outcome.exit_code}", "signal": f"signal {outcome.signal}"}.get(
        outcome.cause, outcome.cause
    )
    lines = [
        f"{how}{': ' + outcome.detail if outcome.detail else ''}",
        f"wall {outcome.wall_s:.3f} s, CPU {outcome.cpu_s:.3f} s, peak {outcome.peak_memory_bytes / 2**20:.1f} MiB",
    ]
    for label, changes in (
        ("+", outcome.diff.created),
        ("~", outcome.diff.changed),
        ("-", outcome.diff.deleted),
    ):
        lines += [f"{label} {change.path!r} ({change.type}, {change.size} bytes)" for change in changes]
    if snapshot_id is not None:
        lines.append(f"snapshot {snapshot_id}")
    shown = []
    for name, data, cut in (
        ("stdout", outcome.stdout, outcome.stdout_truncated),
        ("stderr", outcome.stderr, outcome.stderr_truncated),
    ):
        if data:
            shown.append(f"--- {name}{' (cut at the limit)' if cut else ''}\n{text(data).rstrip()}\n")
    return "".join(shown) + "--- run\n" + "\n".join(lines) + "\n"
