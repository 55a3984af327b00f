"""One reused slot for all hostile jobs, each followed by a job that looks for what it left.

The slot's own processes are not made anew between jobs here, not even after a kill, so that what is shown is that a
reused slot keeps nothing; only a fault of ours would renew them.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.verifier.jail import FileEntry, Host, JailUnavailable, Job, Limits, Outcome, Slot, probe
from tests.slots import number

CALM = Limits(wall_s=20, cpu_s=10)
LOOK = Job(
    argv=("/usr/bin/python3", "-S", "-s", "-B", "/t/look.py"),
    trusted={"look.py": FileEntry((Path(__file__).parent / "look.py").read_bytes())},
    limits=CALM,
)
HONEST = Job(
    argv=("/bin/sh", "-c", "cat given; id -u; ls -A /w /tmp /dev/shm; echo made > new"),
    files={"given": FileEntry(b"as given\n")},
    limits=CALM,
)
HONEST_OUTPUT = b"as given\n1000\n/dev/shm:\n\n/tmp:\n\n/w:\ngiven\n"
OUR_SLACK = 96 << 20
"""Bytes by which one job may raise the most memory that this process ever had: the caps of its streams and of what is kept."""
PEAK_SLACK = 3 << 20  # which pages of the interpreter are still cached is not for a job to decide


@pytest.fixture(scope="session")
def host() -> Host:
    try:
        return probe()
    except JailUnavailable as error:
        # A machine that is to prove the jail must not pass without one.
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no jail on this machine: {error}")


@pytest.fixture(scope="session")
def slot(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    name = f"temper-hostile-{number()}"
    with Slot(name, tmp_path_factory.mktemp("slots"), host) as made:
        made.renew_after, made.jobs_per_launcher = frozenset({"infra"}), 1_000_000
        yield made
    assert not [tree for tree in host.trees if (tree.parent / name).exists()]
    assert outside_users(made) == []
    assert name not in Path("/proc/self/mountinfo").read_text()


@dataclass
class Seen:
    """What the first job of the slot found, and how things stood outside when it had ended."""

    inside: dict[str, Any] = field(default_factory=dict)
    peak_memory: int = 0
    outside: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="session")
def seen(slot: Slot) -> Seen:
    first = look(slot)
    state = outside(slot)
    # What the first read of Python's files brought into the machine's cache was charged to it.
    return Seen(found(first), look(slot).peak_memory_bytes, state)


@pytest.fixture(autouse=True)
def _descriptors_of_this_test(request: pytest.FixtureRequest) -> None:
    """What other tests of this process have left open is not the slot's doing: count from the beginning of each test."""
    if "seen" in request.fixturenames:
        seen: Seen = request.getfixturevalue("seen")
        seen.outside["our descriptors"] = outside(request.getfixturevalue("slot"))["our descriptors"]


@pytest.fixture(scope="session")
def attack(slot: Slot, seen: Seen) -> Callable[..., Outcome]:
    """Run a hostile command; what is true after any job is checked here."""

    def run(argv: tuple[str, ...], limits: Limits, **more: Any) -> Outcome:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome = slot.run(Job(argv=argv, limits=limits, **more))
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < OUR_SLACK
        assert outcome.cause != "infra", outcome.detail
        assert outcome.survivors == 0
        check_traces(slot, seen)
        return outcome

    return run


def check_traces(slot: Slot, seen: Seen) -> None:
    """The next jobs find exactly what the first found, and outside everything stands as it stood then."""
    assert outside(slot) == seen.outside
    after = look(slot)
    for _ in range(
        2
    ):  # the machine may have dropped files from its cache: who reads them again is charged once
        if abs(after.peak_memory_bytes - seen.peak_memory) >= PEAK_SLACK:
            after = look(slot)
    now = found(after)
    assert {name: value for name, value in now.items() if value != seen.inside[name]} == {}
    assert now.keys() == seen.inside.keys()
    assert abs(after.peak_memory_bytes - seen.peak_memory) < PEAK_SLACK
    assert (after.peak_pids, after.cpu_s < 2) == (1, True)
    honest = slot.run(HONEST)
    assert (honest.cause, honest.exit_code, honest.stdout) == ("exit", 0, HONEST_OUTPUT), honest
    assert [change.path for change in honest.diff.created] == ["new"]
    assert (honest.diff.changed, honest.diff.deleted) == ((), ())
    assert outside(slot) == seen.outside


def look(slot: Slot) -> Outcome:
    outcome = slot.run(LOOK)
    assert (outcome.cause, outcome.exit_code, outcome.stderr) == ("exit", 0, b""), outcome
    assert (outcome.diff.created, outcome.diff.changed, outcome.diff.deleted) == ((), (), ())
    return outcome


def found(outcome: Outcome) -> dict[str, Any]:
    return dict(json.loads(line) for line in outcome.stdout.splitlines())


def outside(slot: Slot) -> dict[str, Any]:
    """What the slot has on this machine between two jobs."""
    keeping = sorted(
        {
            int(pid)
            for tree in slot.host.trees
            for pid in (tree.parent / slot.name / "keep" / "cgroup.procs").read_text().split()
        }
    )
    return {
        "keeping": keeping,
        "their descriptors": [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in keeping],
        # nsjail itself sees the mounts of the machine, the keeper those of the slot.
        "their mounts": [
            len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines())
            for pid in keeping
            if Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        ],
        "our descriptors": sum(not is_of_a_job(path) for path in Path("/proc/self/fd").iterdir()),
        "our mounts": Path("/proc/self/mountinfo").read_text().count(slot.name),
        "users": outside_users(slot),
        "groups": sorted(
            path.name
            for tree in slot.host.trees
            for path in (tree.parent / slot.name).iterdir()
            if path.is_dir() and not path.name.startswith("job-")
        ),
        # Those of the last job may stand for the next, with nobody in them.
        "jobs": sorted(
            path.read_text()
            for tree in slot.host.trees
            for path in (tree.parent / slot.name).glob("job-*/cgroup.procs")
            if path.read_text() or len(list((tree.parent / slot.name).glob("job-*"))) > 1
        ),
    }


def is_of_a_job(descriptor: Path) -> bool:
    """Whether it is a file of a job's cgroups: those are kept open as long as the groups stand."""
    try:
        return "/job-" in str(descriptor.readlink())
    except FileNotFoundError:
        return True  # that of the listing itself


def outside_users(slot: Slot) -> list[str]:
    """Processes with one of the slot's user ids: the keeper has the second, a job the others."""
    users = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            uid = int(status.partition("\nUid:")[2].split()[0])
            if slot.uid <= uid < slot.uid + 10:
                users.append(f"{uid - slot.uid}")
    return sorted(users)
