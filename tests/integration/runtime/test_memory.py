"""A process that the kernel really kills for want of memory, and one that somebody else kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.runtime.memory import MOUNT, Witness, counters

pytestmark = pytest.mark.integration
PROJECT = Path(__file__).resolve().parents[3]
LIMIT = 96 << 20
# In the group: supervises two children, one of which takes more than there is; says what the witness makes of each end.
SUPERVISOR = """
import json, os, signal, subprocess, sys
from pathlib import Path
group = Path(sys.argv[1])
(group / "cgroup.procs").write_text(str(os.getpid()))
from services.runtime.memory import Witness
witness, said = Witness(), []
greedy = "x = []\\nwhile True: x.append(bytearray(b'x' * (1 << 20)))"
for code in ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", greedy, "raise SystemExit(3)"):
    child = subprocess.run([sys.executable, "-S", "-c", code])
    witness.look()
    said.append([child.returncode, witness.explains(child.returncode, "")])
print(json.dumps(said))
"""


def made(place: Path) -> Path | None:
    """A group with little memory beside `place`; None: not allowed."""
    group = place.parent / f"temper-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if place.name == "memory.oom_control" else "memory.max"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(str(LIMIT))
        if (group / "memory.swap.max").exists():
            (group / "memory.swap.max").write_text("0")
    except OSError:
        group.rmdir()
        return None
    return group


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own below the one that we are in."""
    places = counters(Path("/proc/self/cgroup").read_text())
    found = next((group for place in places if (group := made(place)) is not None), None)
    if found is None:
        pytest.skip(f"no memory group can be made under {MOUNT}: run as root, or with a delegated group")
    yield found
    found.rmdir()


def test_only_what_the_kernel_killed_for_want_of_memory_is_said_to_have_died_of_it(group: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, str(group)],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [[-9, False], [-9, True], [3, False]]


def test_a_count_is_used_up_by_the_deaths_it_explains(tmp_path: Path) -> None:
    place = tmp_path / "memory.events.local"
    place.write_text("oom 0\noom_kill 4\n")
    witness = Witness([tmp_path / "missing", place])
    witness.look()
    assert not witness.explains(137, "")
    place.write_text("oom 1\noom_kill 5\noom_group_kill 0\n")
    witness.look()
    assert [witness.explains(137, "") for _ in range(2)] == [True, False]
    witness.look()
    assert not witness.explains(137, "")
    assert not Witness([tmp_path / "missing"]).explains(137, "")


def test_the_group_is_found_under_both_versions() -> None:
    found = counters("4:cpu,memory:/a/b\n0::/a/b\n", Path("/m"))
    assert Path("/m/memory/a/b/memory.oom_control") in found
    assert Path("/m/a/b/memory.events.local") in found
