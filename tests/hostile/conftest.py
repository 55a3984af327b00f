"""One slot for all hostile jobs, so that each job also shows that the one before left nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.verifier.jail import FileEntry, Host, JailUnavailable, Job, Limits, Outcome, Slot, probe

HONEST = Job(
    argv=("/bin/sh", "-c", "cat given; id -u; ls -A /w /tmp /dev/shm; echo made > new"),
    files={"given": FileEntry(b"as given\n")},
    limits=Limits(wall_s=10, cpu_s=5),
)
HONEST_OUTPUT = b"as given\n1000\n/dev/shm:\n\n/tmp:\n\n/w:\ngiven\n"


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
    name = f"temper-hostile-{os.getpid() % 5000 + 1000}"
    with Slot(name, tmp_path_factory.mktemp("slots"), host) as made:
        yield made
    assert traces(made) == []
    assert name not in Path("/proc/self/mountinfo").read_text()


@pytest.fixture(scope="session")
def attack(slot: Slot) -> Callable[[tuple[str, ...], Limits], Outcome]:
    """Run a hostile command; what is true after any job is checked here."""

    def run(argv: tuple[str, ...], limits: Limits) -> Outcome:
        outcome = slot.run(Job(argv=argv, limits=limits))
        assert outcome.cause != "infra", outcome.detail
        assert outcome.survivors == 0
        assert traces(slot) == []
        after = slot.run(HONEST)
        assert (after.cause, after.exit_code, after.stdout) == ("exit", 0, HONEST_OUTPUT), after
        assert [change.path for change in after.diff.created] == ["new"]
        assert (after.diff.changed, after.diff.deleted) == ((), ())
        return outcome

    return run


def traces(slot: Slot) -> list[str]:
    """Cgroups, and processes with the slot's user id, that exist now; after a job there must be none."""
    found = [str(path) for tree in slot.host.trees if (path := tree.parent / slot.name).exists()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == slot.uid:
                    found.append(f"process {entry.name}")
            except FileNotFoundError:
                continue
    return found
