"""The pool's hand on one worker process. Invariant: after `kill` nothing of the worker is left, whatever state it was in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from services.verifier.bounds import MEMORY_STATUS, Bounds
from services.verifier.frames import HEAD, Ready, Reply, size
from services.verifier.jail import JailUnavailable

START_S = 60.0
CLOSE_S = 5.0
DEATH_S = 1.0
KILL_S = 10.0
"""Longest that the kernel may take to end a process that was killed; more means that it hangs in the kernel."""
BOUNDS = Bounds(cpu_s=10.0, memory_bytes=1 << 30)
COMMAND = (sys.executable, "-m", "services.verifier.worker")
PROJECT = Path(__file__).resolve().parents[2]
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH")
log = logging.getLogger(__name__)


class WorkerLostError(RuntimeError):
    """The worker died, or did not answer in time; the message says which."""


class WorkerDiedError(WorkerLostError):
    """The worker's process ended by itself. `killed`: by SIGKILL, as when memory runs out, be it its own doing or not."""

    def __init__(self, message: str, *, killed: bool) -> None:
        super().__init__(message)
        self.killed = killed


class CheckOverrunError(WorkerLostError):
    """The worker died of a bound on its own checks (bounds.py): the answer's doing, whatever the machine does."""


class Hand:
    """One worker process, in a session of its own so that its whole group can be killed."""

    def __init__(
        self, name: str, root: Path, command: Sequence[str] = COMMAND, bounds: Bounds = BOUNDS
    ) -> None:
        self.name, self._root, self._command, self._bounds = name, root, command, bounds
        self._process: asyncio.subprocess.Process | None = None
        self.answers = 0
        """Requests answered by the process that runs."""
        self.memory_bytes = 0
        """Its memory after the last of them."""

    @property
    def pid(self) -> int:
        """Process id, 0 before the start and after the end."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> str:
        """Start the process and wait until its slot stands; returns how it jails.

        Raises:
            JailUnavailable: this machine cannot jail; WorkerLostError: the process ended or was silent.
        """
        environment = {key: os.environ[key] for key in KEPT if key in os.environ}
        # The services' own thread pools would fight over the cores; a worker computes on one.
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(PROJECT), environment.get("PYTHONPATH")))
        )
        self.answers = self.memory_bytes = 0
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                self.name,
                str(self._root),
                str(self._bounds.cpu_s),
                str(self._bounds.memory_bytes),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerLostError(f"it cannot be started: {error.strerror}") from error
        ready = await self._receive(Ready, START_S)
        if ready.error:
            await self.kill()
            raise JailUnavailable(ready.error)
        return ready.isolation

    async def ask(self, request: bytes, deadline_s: float) -> Reply:
        """Send a request's frame and wait for its reply. Raises WorkerLostError; the worker must be killed then."""
        stdin, _ = self._pipes()
        try:
            stdin.write(request)
            await asyncio.wait_for(stdin.drain(), deadline_s)
        except TimeoutError as error:
            raise WorkerLostError("it takes no request") from error
        except (ConnectionError, RuntimeError) as error:
            raise await self._death() from error
        reply = await self._receive(Reply, deadline_s)
        self.answers, self.memory_bytes = self.answers + 1, reply.memory_bytes
        return reply

    async def kill(self) -> None:
        """End the process and its group, now. One that hangs in the kernel is waited for for KILL_S, and told of."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have ended already
            os.killpg(process.pid, signal.SIGKILL)
        try:
            await asyncio.wait_for(process.wait(), KILL_S)
        except TimeoutError:
            # It keeps its slot's name and number, so that nobody else gets them.
            said = "worker %s, process %d, has not ended %g s after SIGKILL"
            log.error(said, self.name, process.pid, KILL_S)  # noqa: TRY400 (where it was waited for says nothing)

    async def close(self) -> None:
        """Let the worker take its slot down and end; kill it when it does not."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):  # killed below
            await asyncio.wait_for(process.wait(), CLOSE_S)
        await self.kill()

    async def _death(self) -> WorkerLostError:
        """What it died of, as an error."""
        process = self._process
        if process is not None:
            with contextlib.suppress(TimeoutError):  # it only closed its pipe
                await asyncio.wait_for(process.wait(), DEATH_S)
            if process.returncode == -signal.SIGPROF:
                return CheckOverrunError(f"took more than {self._bounds.cpu_s:g} s of processor time")
            if process.returncode == MEMORY_STATUS:
                return CheckOverrunError(f"took more than {self._bounds.memory_bytes >> 20} MiB of memory")
            if process.returncode is not None:
                how = f"status {process.returncode}"
                if process.returncode < 0:
                    how = signal.Signals(-process.returncode).name
                return WorkerDiedError(f"it died ({how})", killed=process.returncode == -signal.SIGKILL)
        return WorkerLostError("it died")

    def _pipes(self) -> tuple[asyncio.StreamWriter, asyncio.StreamReader]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WorkerLostError("it is not running")
        return process.stdin, process.stdout

    async def _receive[T](self, kind: type[T], deadline_s: float) -> T:
        _, stdout = self._pipes()
        try:
            async with asyncio.timeout(deadline_s):
                body = await stdout.readexactly(size(await stdout.readexactly(HEAD)))
            message: T = msgspec.msgpack.decode(body, type=kind)
        except TimeoutError as error:
            raise WorkerLostError("it did not answer in time") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise await self._death() from error
        except (ValueError, msgspec.MsgspecError) as error:
            raise WorkerLostError("it answered what is no frame") from error
        return message
