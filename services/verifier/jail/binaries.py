"""The small C programs of the jail, compiled on demand.

Invariant: a built file's name carries the digest of its source, so that a stale binary is never used, and it appears
by rename, so that a half-written one is never seen.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from services.verifier.jail.job import JailUnavailable

HERE = Path(__file__).parent
BUILD = HERE / "build"
FLAGS = ("-O2", "-static", "-Wall")
COMPILE_TIMEOUT_S = 60
# Each program: the sources that are compiled, and the headers that these include.
SOURCES = {"launch": ("launch.c",), "keeper": ("keeper.c", "job.c")}
HEADERS = {"keeper": ("keeper.h",)}


def binary(name: str, build: Path = BUILD) -> Path:
    """Path of the compiled program, compiling it first if needed. Raises JailUnavailable naming the command."""
    sources = [HERE / source for source in SOURCES[name]]
    texts = [path.read_bytes() for path in (*sources, *(HERE / header for header in HEADERS.get(name, ())))]
    target = build / f"{name}-{hashlib.sha256(bytes(1).join(texts)).hexdigest()[:12]}"
    if not target.exists():
        compile_to(sources[0], target, *sources[1:])
    return target


def compile_to(source: Path, target: Path, *more: Path) -> None:
    """Compile one static program. Raises JailUnavailable when there is no compiler, no static libc or no room."""
    inputs = [str(path) for path in (source, *more)]
    command = f"gcc {' '.join(FLAGS)} -o {target} {' '.join(inputs)}"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise JailUnavailable(
            f"the jail's {source.name} is not built and there is no C compiler: run {command}"
        )
    scratch = ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f"{target.name}.", dir=target.parent)
        os.close(handle)
        done = subprocess.run(
            [compiler, *FLAGS, "-o", scratch, *inputs],
            capture_output=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise JailUnavailable(f"the jail's {source.name} does not compile ({lines[-1]}): try {command}")
        Path(scratch).chmod(0o755)
        Path(scratch).rename(target)
        scratch = ""
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JailUnavailable(f"the jail's {source.name} cannot be built ({error}): run {command}") from error
    finally:
        if scratch:
            Path(scratch).unlink(missing_ok=True)


def build_all() -> None:
    """Compile what is not compiled yet; for set-up. Raises JailUnavailable."""
    for name in SOURCES:
        binary(name)
