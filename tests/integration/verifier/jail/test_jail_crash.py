"""A slot's process that is killed takes its job along, and the next owner of the name cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.verifier.jail import Host, Job, Slot
from services.verifier.jail.ownership import sweep
from services.verifier.jail.storage import HOME

pytestmark = pytest.mark.integration

OWNER = """
import sys
from pathlib import Path
from services.verifier.jail import Job, Limits, Slot, probe
slot = Slot(sys.argv[1], Path(sys.argv[2]), probe())
print("ready", flush=True)
slot.run(Job(argv=("/bin/sh", "-c", "touch started; setsid sleep 77 & sleep 78"), limits=Limits(wall_s=60, cpu_s=60)))
"""


def members(host: Host, name: str) -> list[str]:
    return [
        pid
        for tree in host.trees
        if (tree.parent / name).exists()
        for pid in (tree.parent / name / "cgroup.procs").read_text().split()
    ]


def until(what: str, condition: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.mark.parametrize("by_sweep", [False, True])
def test_killed_owner(host: Host, tmp_path: Path, *, by_sweep: bool) -> None:
    name = f"temper-crash-{os.getpid()}-81"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, name, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"ready\n"
            until("the job did not start", lambda: len(members(host, name)) >= 4 * len(host.trees))
        finally:
            owner.send_signal(signal.SIGKILL)
    until("the job outlived its owner", lambda: members(host, name) == [])
    if by_sweep:
        sweep(host.trees)
        assert name not in Path("/proc/self/mountinfo").read_text()
        assert not list(HOME.glob(f"{name}*"))
    with Slot(name, tmp_path, host) as slot:
        outcome = slot.run(Job(argv=("/bin/sh", "-c", "ls -A")))
        assert (outcome.cause, outcome.stdout) == ("exit", b"")
    assert name not in Path("/proc/self/mountinfo").read_text()
    assert not [tree for tree in host.trees if (tree.parent / name).exists()]
