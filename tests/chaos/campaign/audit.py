"""What the pools of this process, and the workers killed in them, have left: nothing may be."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from services.verifier.jail.slot import FIRST_UID, UIDS_PER_SLOT
from services.verifier.jail.storage import HOME

DIE_S = 5.0


def left(killed: Sequence[int], numbers: set[int]) -> dict[str, list[str]]:
    """Cgroups, mounts, folders and processes of the slots with these numbers, and of workers with these process ids."""
    marks = [f"temper-v{os.getpid()}-", *(f"temper-probe-{pid}-" for pid in killed)]
    uids = {str(FIRST_UID + n * UIDS_PER_SLOT + k) for n in numbers for k in range(UIDS_PER_SLOT)}

    def marked(text: str) -> bool:
        return any(mark in text for mark in marks)

    found = {
        "cgroups": [path for path, _, _ in os.walk("/sys/fs/cgroup") if marked(path)],
        "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if marked(line)],
        "folders": [path.name for path in HOME.iterdir() if marked(path.name)],
        "processes": [path.name for path in Path("/proc").glob("[0-9]*") if _ours(path, marks, uids)],
    }
    return {kind: names for kind, names in found.items() if names}


def _ours(process: Path, marks: list[str], uids: set[str]) -> bool:
    with suppress(OSError):  # it ends while we look
        lines = (process / "status").read_text().splitlines()
        owner = next(line.split()[1] for line in lines if line.startswith("Uid:"))
        command = (process / "cmdline").read_bytes().decode(errors="replace")
        return owner in uids or any(mark in command for mark in marks)
    return False


@contextmanager
def nothing_left(killed: Sequence[int], numbers: set[int], folders: Sequence[Path]) -> Iterator[None]:
    """Asserts at the end that nothing is left, that `folders` are empty, and that no descriptor stayed open."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    yield
    end = time.monotonic() + DIE_S
    while left(killed, numbers) and time.monotonic() < end:
        time.sleep(0.05)  # the last killed ones are dying
    assert left(killed, numbers) == {}
    for folder in folders:
        assert list(folder.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
