"""A process that we started is ended by its own id, on `stop`, and by the kernel's word if we die first."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from services.runtime.stack.errors import StackError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_KEEPER = Path(__file__).with_name("keeper.py")
_KEEPER_START_S = 20.0


@dataclass(frozen=True)
class Process:
    """One command under a keeper (see `keeper.py`).

    Attributes:
        name: what messages call it.
        pid: process id of the command itself.
        log: the file its standard output and error are appended to.
        log_start: size of that file, in bytes, when this command started.
        keeper: the keeper's handle; its exit status is the command's (128 + N for signal N).
        grace_s: seconds between SIGTERM and SIGKILL on `stop`.
    """

    name: str
    pid: int
    log: Path
    log_start: int
    keeper: subprocess.Popen[bytes]
    grace_s: float

    @classmethod
    def start(
        cls,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        grace_s: float = 10.0,
        held: Sequence[int] = (),
    ) -> Self:
        """Start `argv` so that it dies with this process.

        `held` are descriptors (locks) kept open until the command is gone.

        Raises:
            StackError: the command cannot be run.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        supervisor = os.pidfd_open(os.getpid())
        try:
            with log.open("ab") as sink:
                log_start = sink.tell()
                keeper = subprocess.Popen(
                    [
                        *(sys.executable, "-IS", str(_KEEPER)),
                        *(str(supervisor), str(grace_s), ",".join(map(str, held)), "--"),
                        *argv,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=sink,
                    env=dict(env) if env is not None else None,
                    cwd=cwd,
                    # Own session: Ctrl-C reaches the supervisor alone, which then stops us in order.
                    start_new_session=True,
                    pass_fds=(supervisor, *held),
                )
        finally:
            os.close(supervisor)
        pipe = keeper.stdout
        if pipe is None:
            message = f"{name}: the keeper has no output"
            raise StackError(message)
        with pipe:
            line = pipe.readline() if select.select([pipe], [], [], _KEEPER_START_S)[0] else b""
        if not line.strip().isdigit():
            keeper.kill()
            keeper.wait()
            raise StackError(f"{name}: {line.decode(errors='replace').strip() or 'its keeper did not start'}")
        return cls(name=name, pid=int(line), log=log, log_start=log_start, keeper=keeper, grace_s=grace_s)

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self.keeper.poll()

    def wait(self, timeout_s: float) -> int:
        """Exit status; raises `subprocess.TimeoutExpired` at the deadline."""
        return self.keeper.wait(timeout_s)

    def signal(self, number: int) -> None:
        """Send a signal to the command itself (not to its keeper)."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def stop(self) -> int:
        """End it: SIGTERM, `grace_s` later SIGKILL. Idempotent; returns the exit status."""
        if self.keeper.poll() is None:
            self.keeper.send_signal(signal.SIGTERM)
        try:
            return self.keeper.wait(self.grace_s + 5.0)
        except subprocess.TimeoutExpired:
            # PR_SET_PDEATHSIG takes the command along.
            self.keeper.kill()
            return self.keeper.wait()

    def output(self) -> str:
        """What it has written since it started (invalid bytes replaced)."""
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()
