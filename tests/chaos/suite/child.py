"""A process under attack. Invariant: it is known by its id, and its end is an event that can be waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

END_S = 60.0
"""A process that was told to end has this long."""
LOOK_S = 0.02


class Child:
    """A process of the site."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, since: int) -> None:
        """`since`: size of the log when it started."""
        self.name, self.process, self.log, self.since = name, process, log, since
        self.may_end = False
        """Whether it is meant to end by itself, or somebody has seen to it that it does."""
        self._over = asyncio.Event()
        self._handle = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._handle, self._exited)

    def _exited(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1
            self._over.set()

    @property
    def pid(self) -> int:
        """Its id."""
        return self.process.pid

    @property
    def phase(self) -> str:
        """Its state as the kernel calls it: T is stopped; empty once it has ended."""
        if self.process.poll() is not None:
            return ""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # it has ended in between
            return ""

    def said(self) -> str:
        """What it has written."""
        with self.log.open("rb") as file:
            file.seek(self.since)
            return file.read().decode(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    async def stopped(self, within_s: float = END_S) -> None:
        """Wait until it stands still.

        Raises:
            AssertionError: it does not in time.
        """
        try:
            async with asyncio.timeout(within_s):
                while self.phase != "T":  # noqa: ASYNC110 (the kernel tells only the parent's wait of it)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise AssertionError(
                f"{self.name} does not stand still: state {self.phase or 'ended'}, {self.said()[-1000:]}"
            ) from None

    async def ended(self, within_s: float = END_S) -> int:
        """Its exit status.

        Raises:
            AssertionError: it has not ended in time.
        """
        try:
            await asyncio.wait_for(self._over.wait(), within_s)
        except TimeoutError:
            raise AssertionError(
                f"{self.name} did not end within {within_s:g} s: {self.said()[-2000:]}"
            ) from None
        return self.process.wait(END_S)
