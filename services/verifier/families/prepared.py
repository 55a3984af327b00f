"""Trusted Python programs as the jail runs them. Invariant: compiled once a process, by the interpreter that will run them.

Compiling a driver anew in each jail would cost more than the jail.
"""

from __future__ import annotations

import io
import marshal
import subprocess
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from services.verifier.inside import source
from services.verifier.jail import FileEntry, JailUnavailable

PYTHON = "/usr/bin/python3"
FLAGS = ("-S", "-s", "-B")
COMPILE_S = 60.0
# Never looks at a source again (flag 1), so the bytes depend on the sources and the interpreter only.
COMPILER = """
import marshal, sys
from importlib.util import MAGIC_NUMBER
head = MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
given = marshal.loads(sys.stdin.buffer.read())
made = [head + marshal.dumps(compile(text, name, "exec", dont_inherit=True)) for name, text in given]
sys.stdout.buffer.write(marshal.dumps(made, 2))
"""


def compiled(sources: list[tuple[str, bytes]]) -> list[bytes]:
    """The `.pyc` bytes of each (file name, source), for the jail's interpreter.

    Raises JailUnavailable: that interpreter does not run.
    """
    try:
        done = subprocess.run(
            [PYTHON, *FLAGS, "-c", COMPILER],
            input=marshal.dumps(sources, 2),
            capture_output=True,
            timeout=COMPILE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JailUnavailable(f"{PYTHON} does not compile the verifier's programs: {error}") from error
    made: list[bytes] = marshal.loads(done.stdout)  # noqa: S302 (written by the system's interpreter on our sources)
    return made


@cache
def programs(*names: str) -> Mapping[str, FileEntry]:
    """Modules of `inside/` as read-only files `NAME.pyc`; they import each other by their bare names."""
    made = compiled([(f"/t/{name}.py", source(f"{name}.py")) for name in names])
    return MappingProxyType(
        {f"{name}.pyc": FileEntry(code, 0o444) for name, code in zip(names, made, strict=True)}
    )


def installed(package: str) -> dict[str, bytes]:
    """The Python sources of an installed package or module, by their path. Raises JailUnavailable if there is none."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise JailUnavailable(f"suites need {package}, which is not installed here: pip install pytest")
    top = Path(found.origin)
    if not found.submodule_search_locations:
        return {top.name: top.read_bytes()}
    return {
        f"{path.relative_to(top.parent.parent)}": path.read_bytes()
        for path in sorted(top.parent.rglob("*.py"))
    }


@cache
def archive(*packages: str) -> FileEntry:
    """A zip of compiled packages, for the jail's `sys.path`: one file to lay out, and nothing to compile in each jail."""
    sources = {path: text for package in packages for path, text in installed(package).items()}
    made = compiled([(f"/t/{path}", text) for path, text in sources.items()])
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as file:
        for path, code in zip(sources, made, strict=True):
            file.writestr(zipfile.ZipInfo(f"{path}c"), code)
    return FileEntry(whole.getvalue(), 0o444)


def argv(name: str) -> tuple[str, ...]:
    """The command that runs one of them.

    Not -I: it would ignore PYTHONHASHSEED, and the order of a set must be the same each time. The environment holds
    nothing else, site packages are off, and sys.path starts with the read-only trusted folder.
    """
    return (PYTHON, *FLAGS, f"/t/{name}.pyc")
