"""The services of a run as processes. Invariant: one that dies is started again, boundedly; none outlives us."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from schemas.heartbeats import Service, WorkerHeartbeat
from schemas.run import RunConfig
from services.console.errors import ConsoleError
from services.runtime.memory import Witness
from services.runtime.stack import Process

RESTARTS, WINDOW_S = 5, 120.0
"""More restarts than this within the window end the run."""
BACKOFF_S = 0.5
GRACE_S = 25.0
SIGNALLED = 128
"""A status above says that a signal ended it."""
BAD_INPUT = 2
"""Exit status of a service whose input is wrong: starting it again would not help."""


def roster(config: RunConfig, *, evaluate: bool = True) -> dict[str, Service]:
    """Worker id -> service, for one run."""
    count = config.scheduler.replicas
    schedulers = ["scheduler"] if count == 1 else [f"scheduler-{n}" for n in range(count)]
    workers: dict[str, Service] = dict.fromkeys(schedulers, "scheduler")
    workers["trainer"] = "trainer"
    if evaluate:
        workers["evaluator"] = "evaluator"
    for n in range(config.sampler.replicas):
        workers[f"sampler-{n}"] = "sampler"
    for n in range(config.verifier.replicas):
        workers[f"verifier-{n}"] = "verifier"
    return workers


def _last_line(process: Process) -> str:
    lines = process.output().strip().splitlines()
    return lines[-1] if lines else "no output"


class Services:
    """Starts, watches, restarts and stops services."""

    def __init__(self, workers: Mapping[str, Service], environment: Mapping[str, str], logs: Path) -> None:
        self._workers = dict(workers)
        self._environment = dict(environment)
        self._logs = logs
        self._running: dict[str, Process] = {}
        self._ended: dict[str, deque[float]] = {name: deque(maxlen=RESTARTS) for name in workers}
        self._due: dict[str, float] = {}
        self._leaving: set[str] = set()
        self._witness = Witness()
        self.restarts: dict[str, int] = dict.fromkeys(workers, 0)
        self.gone: list[WorkerHeartbeat] = []
        """What is to be told of workers that ended, so that nobody waits for their leases to run out; the caller takes it out."""

    def start(self) -> None:
        """Start all."""
        for name in self._workers:
            self._start(name)

    def watch(self) -> list[str]:
        """Start again what has died, and say so, a line each; call at least once a second.

        Raises:
            ConsoleError: a service ends with a fault of its input, or too often.
        """
        now = time.monotonic()
        notes: list[str] = []
        codes = {name: process.poll() for name, process in self._running.items()}
        self._witness.look()  # after the deaths: the kernel counts before it kills
        for name, process in list(self._running.items()):
            code = codes[name]
            if code is None:
                continue
            del self._running[name]
            if name in self._leaving or (code == 0 and self._workers[name] == "trainer"):
                self._leaving.add(name)
                continue
            if code == BAD_INPUT:
                raise ConsoleError(f"{name} cannot work: {_last_line(process)} (log: {process.log})")
            ended = self._ended[name]
            if len(ended) == RESTARTS and now - ended[0] < WINDOW_S:
                raise ConsoleError(
                    f"{name} ended {RESTARTS} times within {WINDOW_S:.0f} s: {_last_line(process)} (log: {process.log})"
                )
            self._due[name] = now + BACKOFF_S * 2 ** sum(1 for at in ended if now - at < WINDOW_S)
            ended.append(now)
            self.restarts[name] += 1
            how: Literal["exit", "signal", "memory"] = "signal" if code < 0 or code > SIGNALLED else "exit"
            if self._witness.explains(code, _last_line(process)):
                how = "memory"
            self.gone.append(
                WorkerHeartbeat(worker=name, service=self._workers[name], ended=how, pid=process.pid)
            )
            what = "ran out of memory" if how == "memory" else f"ended with status {code}"
            notes.append(f"{name} {what} and is started again (log: {process.log})")
        for name, at in list(self._due.items()):
            if now >= at:
                del self._due[name]
                self._start(name)
        return notes

    def pids(self) -> dict[str, int]:
        """Worker id -> process id, of those that run."""
        return {name: process.pid for name, process in self._running.items()}

    def stop(self) -> None:
        """End all, side by side; idempotent."""
        self._leaving |= set(self._workers)
        with ThreadPoolExecutor(max_workers=max(1, len(self._running))) as pool:
            list(pool.map(Process.stop, self._running.values()))
        self._running.clear()

    def _start(self, name: str) -> None:
        service = self._workers[name]
        self._running[name] = Process.start(
            name,
            [sys.executable, "-m", f"services.{service}"],
            log=self._logs / f"{name}.log",
            env=self._environment | {"TEMPER_WORKER": name},
            grace_s=GRACE_S,
        )
        # By rename: whoever reads it never sees half of it.
        temporary = self._logs / "pids.tmp"
        temporary.write_text(json.dumps(self.pids()))
        temporary.rename(self._logs / "pids.json")
