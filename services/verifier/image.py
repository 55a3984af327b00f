"""What a verdict depends on besides task, answer and families: the programs of this machine.

Invariant: the digest is the same for every process of a machine and changes with any program that runs or checks answers.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from services.verifier.jail import JailUnavailable
from services.verifier.jail.machine import PYTHON, find_nsjail

JAIL, INSIDE = (Path(__file__).parent / name for name in ("jail", "inside"))
TOOLS = (
    (str(PYTHON), "-VV"),
    ("gcc", "--version"),
    ("g++", "--version"),
    ("bash", "--version"),
    ("node", "--version"),
)
"""What a card's programs may be run or built by; one that is absent counts as such."""
LIBRARIES = ("numpy", "scipy", "trimesh", "manifold3d", "rtree", "jsonschema", "msgspec")
TOOL_S = 10.0


def image() -> str:
    """Digest over the jail's programs and policy, the tools and libc that it shows, and our own libraries, in 16 digits.

    Raises:
        JailUnavailable: nsjail is missing.
    """
    facts = [
        f"python {platform.python_version()}",
        f"libc {os.confstr('CS_GNU_LIBC_VERSION')}",
        platform.machine(),
    ]
    facts += [f"{name} {_library(name)}" for name in LIBRARIES]
    facts += [f"{command[0]} {_tool(command)}" for command in TOOLS]
    hasher = hashlib.sha256("\n".join(facts).encode())
    sources = [path for folder in (JAIL, INSIDE) for path in sorted(folder.iterdir()) if path.is_file()]
    for path in (find_nsjail(), *sources):
        hasher.update(f"\n{path.name} ".encode())
        hasher.update(hashlib.sha256(path.read_bytes()).digest())
    return hasher.hexdigest()[:16]


def _library(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _tool(command: tuple[str, ...]) -> str:
    path = shutil.which(command[0])
    if path is None:
        return "absent"
    real = Path(path).resolve()
    try:
        done = subprocess.run(
            [path, *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JailUnavailable(f"{path} {command[1]} does not run: {error}") from error
    return f"{real.name} {real.stat().st_size} {done.stdout.decode('utf-8', 'replace').strip()}"
