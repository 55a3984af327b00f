"""Stamps that processes of one machine share. Invariant: each cell is written once, by one process, with CLOCK_MONOTONIC.

A stamp costs a worker no system call and no message, so what is measured is not slowed by being measured.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Self

VARIABLE = "TEMPER_BENCH_BOARD"
"""Environment variable with the path, for measured processes."""
_SIZE = 8


class Board:
    """Two stamps for each of `count` tasks, in seconds: submitted and begun; 0 where there is none yet."""

    def __init__(self, path: Path) -> None:
        """Open the file that `create` made."""
        self.path = path
        self.count = path.stat().st_size // (2 * _SIZE)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._cells = memoryview(self._map).cast("d")

    @classmethod
    def create(cls, path: Path, count: int) -> Self:
        """Make the file for `count` tasks and open it."""
        with path.open("wb") as file:
            file.truncate(2 * count * _SIZE)
        return cls(path)

    @classmethod
    def of_environment(cls) -> Self:
        """The board of the process that started this one."""
        return cls(Path(os.environ[VARIABLE]))

    def submit(self, number: int) -> None:
        """Task `number` is about to be submitted."""
        self._cells[number] = time.monotonic()

    def begin(self, number: int) -> None:
        """A worker has task `number` in hand; only the first time counts."""
        cell = self.count + number
        if self._cells[cell] == 0.0:
            self._cells[cell] = time.monotonic()

    def submitted(self, first: int, count: int) -> list[float]:
        """Times of `count` tasks from `first` on."""
        return [float(at) for at in self._cells[first : first + count]]

    def begun(self, first: int, count: int) -> list[float]:
        """Times of `count` tasks from `first` on."""
        return self.submitted(self.count + first, count)

    def close(self) -> None:
        """Unmap and remove."""
        self._cells.release()
        self._map.close()
        self.path.unlink(missing_ok=True)
