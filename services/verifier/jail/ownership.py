"""Who owns a slot's name and number, and what is done about names whose owner died.

Invariant: a name has at most one owner on this machine, and so has a number, from which the slot's outside user ids come:
no two slots that stand at the same time share one, whichever processes they belong to (numbers.py). The kernel ends an
ownership with the process, however that ends; what the process left (mounts, cgroups, folders) is removed by the next
owner or by the next `sweep`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from services.verifier.jail.cgroups import Groups, orphans
from services.verifier.jail.hierarchy import Tree
from services.verifier.jail.job import JailUnavailable
from services.verifier.jail.numbers import disown, own
from services.verifier.jail.storage import HOME, clear_orphans

RETRY_S = 0.01
_numbers: dict[int, tuple[Path, int]] = {}
"""Descriptor of a name's lock -> folder and number that go with it."""


def take_lock(path: Path, wait_s: float) -> int:
    """Own the name of the lock file `path`, and the number that it ends in.

    Raises JailUnavailable when another process owns one of them, for longer than `wait_s`.
    """
    end = time.monotonic() + wait_s
    fd = take_name(path, wait_s)
    try:
        _numbers[fd] = path.parent, own(path.parent, path.stem, end)
    except JailUnavailable:
        path.unlink(missing_ok=True)
        os.close(fd)
        raise
    return fd


def take_name(path: Path, wait_s: float) -> int:
    """Own the name of the lock file `path` only. Raises JailUnavailable as `take_lock` does.

    A sweep owns a name for some milliseconds; flock has no waiting with a deadline, hence the retries.
    """
    end = time.monotonic() + wait_s
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JailUnavailable(f"slot folder {path.parent} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            if time.monotonic() >= end:
                raise JailUnavailable(
                    f"slot {path.stem} is in use by another process: choose another name"
                ) from None
            time.sleep(RETRY_S)
            continue
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # its owner removed the file between our two calls


def free_lock(fd: int, path: Path) -> None:
    """Remove the lock file while we still hold it, then let go of the name and of its number."""
    path.unlink(missing_ok=True)
    owned = _numbers.pop(fd, None)
    os.close(fd)
    if owned is not None:
        disown(*owned)


def clear(name: str, trees: Sequence[Tree], folders: Iterable[Path]) -> None:
    """Remove what an earlier owner of the name left; the caller owns it now. Raises OSError."""
    for path in orphans(trees, name):
        Groups([tree for tree in trees if tree.parent == path.parent], name).remove()
    clear_orphans(name, folders)


def sweep(trees: Sequence[Tree]) -> list[str]:
    """Clear every name whose owner died; returns them. Raises OSError."""
    dead = []
    for path in sorted(HOME.glob("temper-*.lock")):
        try:
            fd = take_name(path, 0)  # its number may be another's by now
        except JailUnavailable:
            continue  # alive
        clear(path.stem, trees, [HOME / path.stem])
        free_lock(fd, path)
        dead.append(path.stem)
    return dead
