"""The broker runs only from jars whose bytes are those of the committed lock file.

`python -m services.runtime.stack` (part of `make setup`) fetches them once into the environment's own folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from services.runtime.stack.errors import StackError

BROKER_FILES = Path(__file__).resolve().parents[3] / "deploy" / "broker"
LOCK_FILE = BROKER_FILES / "jgo.lock.toml"
CACHE = Path(sys.prefix) / "temper-broker"
# Two resolutions: in one, the binding's dependency management would win and bring kafka-clients 3.9.
ROOTS = (("org.apache.kafka", "kafka_2.13"), ("org.apache.logging.log4j", "log4j-slf4j-impl"))
_RESOLVE_S = 300.0


def locked(lock_file: Path = LOCK_FILE) -> dict[str, str]:
    """File name of each jar -> sha256.

    Raises:
        StackError: the lock file is missing or malformed.
    """
    return {f"{name[1]}-{version}.jar": digest for name, (version, digest) in _entries(lock_file).items()}


def _entries(lock_file: Path) -> dict[tuple[str, str], tuple[str, str]]:
    try:
        table = tomllib.loads(lock_file.read_text())
        return {
            (str(entry["groupId"]), str(entry["artifactId"])): (str(entry["version"]), str(entry["sha256"]))
            for entry in table["dependencies"]
        }
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise StackError(
            f"{lock_file}: no usable list of the broker's jars ({error}): restore it from the repository"
        ) from error


def problems(folder: Path, lock_file: Path = LOCK_FILE) -> list[str]:
    """What differs between the folder and the lock file, one line each; empty when all is well."""
    wanted = locked(lock_file)
    found = {path.name: path for path in folder.glob("*.jar")}
    lines = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    lines += [f"{name} is not in the lock file" for name in sorted(found.keys() - wanted.keys())]
    for name in sorted(wanted.keys() & found.keys()):
        with found[name].open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != wanted[name]:
                lines.append(f"{name} differs from the lock file")
    return lines


def ensure(cache: Path = CACHE, lock_file: Path = LOCK_FILE) -> Path:
    """The folder with the checked jars; resolves them first if they are not there or not right.

    Raises:
        StackError: they cannot be fetched, or what was fetched is not what the lock file says.
    """
    folder = cache / "jars"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as guard:
        # Several starts at once: one fetches, the others wait for it, no longer than its own deadline.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not problems(folder, lock_file):
            return folder
        with tempfile.TemporaryDirectory(dir=cache, prefix="resolve-") as scratch:
            fresh = Path(scratch) / "jars"
            fresh.mkdir()
            for group, artifact in ROOTS:
                _resolve(Path(scratch), group, artifact, fresh, lock_file)
            wrong = problems(fresh, lock_file)
            if wrong:
                more = f" and {len(wrong) - 1} more" if wrong[1:] else ""
                raise StackError(
                    f"the broker's jars do not fit {lock_file.name}: {wrong[0]}{more}; "
                    "set TEMPER_KAFKA=host:port to use another broker"
                )
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    return folder


def _resolve(scratch: Path, group: str, artifact: str, into: Path, lock_file: Path) -> None:
    entries = _entries(lock_file)
    if (group, artifact) not in entries:
        raise StackError(f"{lock_file}: {group}:{artifact} is not listed: restore it from the repository")
    coordinate = f"{group}:{artifact}:{entries[group, artifact][0]}"
    environments = scratch / artifact
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "jgo", "--quiet", "--resolver", "python"),
                *("--cache-dir", str(environments), "--repo-cache", str(scratch / "m2")),
                *("info", "classpath", coordinate),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RESOLVE_S,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise _unreachable(f"no end within {_RESOLVE_S:.0f} s") from error
    if done.returncode != 0:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise _unreachable(said[-1] if said else "no reason given")
    for jar in environments.rglob("*.jar"):
        # Of the second resolution only the binding itself: the rest is already there with Kafka.
        if artifact == ROOTS[0][1] or jar.name.startswith(artifact):
            shutil.copyfile(jar, into / jar.name)


def _unreachable(reason: str) -> StackError:
    return StackError(
        f"the broker's jars could not be fetched ({reason}): set TEMPER_KAFKA=host:port to use a broker that "
        "runs elsewhere, or run `make setup` where a Maven repository can be reached"
    )
