"""Whoever of a slot's processes is killed, and when: nothing survives, the job at hand is `infra`, the next one is fine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from services.verifier.jail import Host, Job, Limits, Outcome, Slot
from services.verifier.jail.ownership import sweep
from services.verifier.jail.storage import HOME
from tests.slots import number

pytestmark = pytest.mark.integration

OWNER = """
import sys
from pathlib import Path
from services.verifier.jail import Job, Limits, Slot, probe
slot = Slot(sys.argv[1], Path(sys.argv[2]), probe())
slot.run(Job(argv=("/bin/true",)))
print("ready", flush=True)
if sys.argv[3] == "running":
    slot.run(Job(argv=("/bin/sh", "-c", "setsid sleep 77 & sleep 78"), limits=Limits(wall_s=60, cpu_s=60)))
else:
    sys.stdin.read()
"""
LONG = Job(argv=("/bin/sh", "-c", "setsid sleep 77 & sleep 78"), limits=Limits(wall_s=60, cpu_s=60))
NEXT = Job(argv=("/bin/sh", "-c", "ls -A; echo $$"))


def groups(host: Host, name: str) -> list[Path]:
    """The slot's groups and all below, in the hierarchy that can kill (or the last)."""
    top = host.trees[-1].parent / name
    return [top, *(path for path in top.iterdir() if path.is_dir())] if top.exists() else []


def members(host: Host, name: str, below: str = "") -> list[int]:
    found = []
    for group in groups(host, name):
        if group.name.startswith(below):
            try:
                found += [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
            except OSError:
                continue  # removed meanwhile
    return found


def until(what: str, condition: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("state", ["running", "idle"])
@pytest.mark.parametrize("by_sweep", [False, True])
def test_killed_owner(host: Host, tmp_path: Path, state: str, *, by_sweep: bool) -> None:
    name = f"temper-crash-{os.getpid()}-{number()}"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, name, str(tmp_path), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"ready\n"
            if state == "running":  # the init, the shell and its two children
                until("the job did not start", lambda: len(members(host, name, "job-")) == 4)
            alive = members(host, name)
        finally:
            owner.send_signal(signal.SIGKILL)
    assert len(alive) == (6 if state == "running" else 2)
    until("something outlived its owner", lambda: members(host, name) == [] and all(map(gone, alive)))
    if by_sweep:
        assert name in sweep(host.trees)
        assert name not in Path("/proc/self/mountinfo").read_text()
        assert not list(HOME.glob(f"{name}*"))
        assert groups(host, name) == []
    with Slot(name, tmp_path, host) as slot:
        outcome = slot.run(NEXT)
        assert (outcome.cause, outcome.stdout) == ("exit", b"2\n")
    assert name not in Path("/proc/self/mountinfo").read_text()
    assert not [tree for tree in host.trees if (tree.parent / name).exists()]


def victim(host: Host, slot: Slot, who: str) -> int:
    """One of the slot's processes by its part in it."""
    assert slot._launcher is not None
    launch = slot._launcher._pid
    if who == "launcher":
        return launch
    keeping = members(host, slot.name, "keep")
    parents = {
        pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in keeping
    }
    nsjail = next(pid for pid in keeping if parents[pid] == launch)
    if who == "nsjail":
        return nsjail
    keeper = next(pid for pid in keeping if parents[pid] == nsjail)
    if who == "keeper":
        return keeper
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return int(children[0])


@pytest.mark.parametrize("who", ["launcher", "nsjail", "keeper", "init"])
def test_a_process_of_the_slot_killed_under_a_job(slot: Slot, host: Host, who: str) -> None:
    assert slot.run(NEXT).stdout == b"2\n"
    ended: list[Outcome] = []
    running = threading.Thread(target=lambda: ended.append(slot.run(LONG)))
    running.start()
    until("the job did not start", lambda: len(members(host, slot.name, "job-")) == 4)
    alive = members(host, slot.name, "job-")
    begun = time.monotonic()
    os.kill(victim(host, slot, who), signal.SIGKILL)
    running.join(20)
    assert time.monotonic() - begun < 2
    assert all(map(gone, alive))
    assert (ended[0].cause, ended[0].exit_code, ended[0].signal, ended[0].survivors) == (
        "infra",
        None,
        None,
        0,
    )
    assert ended[0].detail
    for _ in range(2):
        after = slot.run(NEXT)
        assert (after.cause, after.stdout) == ("exit", b"2\n"), after


@pytest.mark.parametrize("who", ["launcher", "nsjail", "keeper"])
def test_a_process_of_the_slot_killed_between_jobs(slot: Slot, host: Host, who: str) -> None:
    for _ in range(2):
        assert slot.run(NEXT).stdout == b"2\n"
        alive = members(host, slot.name)
        os.kill(victim(host, slot, who), signal.SIGKILL)
        for pid in alive:
            until("something of the slot lives on", partial(gone, pid))
    assert slot.run(NEXT).stdout == b"2\n"


def test_all_of_a_stopped_slot_is_killed(slot: Slot, host: Host) -> None:
    """A keeper that no longer answers (stopped here) makes a set-up that never ends, not a verifier that hangs."""
    assert slot.run(NEXT).stdout == b"2\n"
    os.kill(victim(host, slot, "keeper"), signal.SIGSTOP)
    slot.close()
    assert groups(host, slot.name) == []
