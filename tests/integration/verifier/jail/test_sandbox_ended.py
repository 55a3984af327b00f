"""`temper sandbox run` ended from outside takes the jailed job along and leaves nothing, however it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.verifier.jail import Host
from services.verifier.jail.machine import sweep_dead
from services.verifier.jail.storage import HOME

pytestmark = pytest.mark.integration
DEADLINE_S = 30.0
CONSOLE, SERVICE = "services.console", "services.verifier"


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)  # nothing tells of another process's children


def children(pid: int) -> list[int]:
    """Processes whose parent `pid` is."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue  # ended meanwhile
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return found


def sleepers(mark: str) -> list[int]:
    """Live processes that sleep for so long."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"/bin/sleep", mark.encode()]:
                found.append(int(folder.name))
    return found


def traces(pid: int) -> list[str]:
    """What a slot of the process would leave."""
    name = f"temper-cli-{pid}-"
    found = [str(path) for path in HOME.glob(f"{name}*")]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if name in line]
    found += [path for path, _, _ in os.walk("/sys/fs/cgroup") if name in path]
    return found


@pytest.fixture
def started(host: Host, tmp_path: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[bytes], str]]]:
    assert host.isolation
    made: list[subprocess.Popen[bytes]] = []

    def start(module: str) -> tuple[subprocess.Popen[bytes], str]:
        mark = f"40.{os.getpid()}{len(made)}"
        # Whoever runs the tests may have ignored signals (nohup does), and what is ignored stays so.
        command = ["/usr/bin/env", "--default-signal", sys.executable, "-m", module, "sandbox", "run"]
        command += ["--wall", "40", "--", "/bin/sleep", mark]
        env = os.environ | {"TEMPER_BLOBS": str(tmp_path / "blobs"), "TMPDIR": str(tmp_path)}
        made.append(subprocess.Popen(command, env=env, start_new_session=True))
        until(lambda: sleepers(mark), "the job never ran")
        return made[-1], mark

    yield start
    for process in made:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.mark.parametrize("module", [CONSOLE, SERVICE])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_to_one_process_ends_all_and_leaves_nothing(
    started: Callable[[str], tuple[subprocess.Popen[bytes], str]],
    module: str,
    number: signal.Signals,
    tmp_path: Path,
) -> None:
    process, mark = started(module)
    service = process.pid if module == SERVICE else children(process.pid)[0]
    assert traces(service)
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == 128 + number
    assert not sleepers(mark)
    assert not traces(service)
    assert not list(tmp_path.iterdir()), "nothing is left in the folder for temporary files"


def test_a_console_that_is_killed_takes_the_job_along(
    started: Callable[[str], tuple[subprocess.Popen[bytes], str]],
) -> None:
    process, mark = started(CONSOLE)
    (service,) = children(process.pid)
    process.kill()
    process.wait(DEADLINE_S)
    until(lambda: not sleepers(mark), "the job runs on")
    until(lambda: not traces(service), "its slot is left")


def test_what_a_killed_service_leaves_is_swept(
    started: Callable[[str], tuple[subprocess.Popen[bytes], str]], host: Host
) -> None:
    process, mark = started(SERVICE)
    process.kill()
    process.wait(DEADLINE_S)
    until(lambda: not sleepers(mark), "the job runs on")
    sweep_dead(list(host.trees))
    assert not traces(process.pid)
