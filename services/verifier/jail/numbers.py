"""Numbers of slots: a slot's outside user ids are made of its number.

Invariant: a number is reserved by at most one process and owned by at most one slot on this machine; the kernel ends both
with the process. Both are locks of single bytes of one file. They are locks of the process (POSIX), which a jailed program
does not see in /proc/locks as it would see those of an open file; a process's own slots are told apart here. Closing the
file would end all of them, so it stays open.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from services.verifier.jail.job import JailUnavailable
from services.verifier.jail.storage import HOME

FILE = "numbers"
COUNT = 10_000
"""Numbers 0 to 9999: four digits of a slot's name."""
RESERVED = COUNT
"""First byte of the reservations; those of the owners come before."""
APART = 16
"""How far apart processes begin to look, so that they rarely meet."""
RETRY_S = 0.01
LOCK = struct.Struct("hhqqi4x")
"""`struct flock`: type, whence, start, length, process."""


@dataclass(slots=True)
class _File:
    """The file of one folder as this process holds it; `process` does not hold what it inherited by a fork."""

    descriptor: int
    process: int
    ours: set[int]


_files: dict[Path, _File] = {}


@dataclass(frozen=True, slots=True)
class Reserved:
    """Numbers that no other process, and nobody else in this one, is given before `close`."""

    numbers: tuple[int, ...]
    home: Path

    def close(self) -> None:
        """Let them go."""
        for number in self.numbers:
            _unlock(_file(self.home), RESERVED + number)


def reserve(count: int, home: Path = HOME, first: int | None = None) -> Reserved:
    """`count` numbers that are neither reserved nor in use, looked for from `first` on (a place of this process's own).

    Raises JailUnavailable when there are not so many.
    """
    file = _file(home)
    found: list[int] = []
    begin = os.getpid() * APART if first is None else first
    for step in range(COUNT):
        if len(found) == count:
            break
        number = (begin + step) % COUNT
        if not _lock(file, RESERVED + number):
            continue
        if _free(file, number):
            found.append(number)
        else:
            _unlock(file, RESERVED + number)
    made = Reserved(tuple(found), home)
    if len(found) < count:
        made.close()
        raise JailUnavailable(
            f"{count} slots are wanted, {len(found)} of {COUNT} are free: end other verifiers"
        )
    return made


def own(home: Path, name: str, end: float) -> int:
    """Own the number that a slot's name ends in; returns it, for `disown`.

    Raises JailUnavailable: another slot has it still at `end` (CLOCK_MONOTONIC), or the name ends in none.
    """
    digits = name.rpartition("-")[2]
    if not digits.isdigit() or int(digits) >= COUNT:
        raise JailUnavailable(f"slot name {name!r}: it must end in a number below {COUNT}")
    file = _file(home)
    while not _lock(file, int(digits)):
        if time.monotonic() >= end:
            raise JailUnavailable(
                f"slot number {digits} and its user ids are in use by another slot: choose another number"
            )
        time.sleep(RETRY_S)  # a lock has no waiting with a deadline
    return int(digits)


def disown(home: Path, number: int) -> None:
    """Let go of a number that was owned."""
    _unlock(_file(home), number)


def _file(home: Path) -> _File:
    known = _files.get(home)
    if known is not None and known.process == os.getpid():
        return known
    try:
        home.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(home / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise JailUnavailable(f"slot folder {home} cannot be used: {error.strerror}") from error
    made = _files[home] = _File(descriptor, os.getpid(), set())
    return made


def _lock(file: _File, byte: int) -> bool:
    if byte in file.ours:
        return False
    try:
        fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except (BlockingIOError, PermissionError):  # as the kernel pleases
        return False
    file.ours.add(byte)
    return True


def _unlock(file: _File, byte: int) -> None:
    if byte in file.ours:
        file.ours.remove(byte)
        fcntl.lockf(file.descriptor, fcntl.LOCK_UN, 1, byte)


def _free(file: _File, byte: int) -> bool:
    if byte in file.ours:
        return False
    asked = LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    said: bytes = fcntl.fcntl(file.descriptor, fcntl.F_GETLK, asked)
    return int(LOCK.unpack(said)[0]) == fcntl.F_UNLCK
