"""The systems that are compared, each as the processes it needs. Invariant: what is started here ends with us.

All have the same Redis, as many worker processes or slots as they are told, and their usual settings, but for what would
slow them needlessly: results are not stored, and as many tasks may be fetched ahead as we lease.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import msgspec
import redis

from schemas.run import Domains, RunConfig, Scheduler, Training
from services.runtime import settings
from services.runtime.errors import Unavailable
from services.runtime.stack import Process, Stack
from services.scheduler.bench.board import VARIABLE, Board
from services.scheduler.bench.names import DOMAINS, OURS, domain
from services.scheduler.bench.submitter import Request
from services.scheduler.settings import redis_key

PROJECT = Path(__file__).resolve().parents[3]
PEERS = ("celery", "dramatiq", "arq")
READY_S = 60.0
LOOK_S = 0.01
"""Pause between two looks at how far a system is."""
MODULE = "services.scheduler.bench"
CARD = 'name="{name}"\nlayer="foundation"\nsummary="nothing"\ngenerator="m:f"\n[verifier]\nfamily="format"\n'


class BenchError(Unavailable):
    """A measured system does not do what it should; the message says which and what."""


def absent() -> list[str]:
    """Peers that are not installed."""
    return [peer for peer in PEERS if importlib.util.find_spec(peer) is None]


def write_cards(folder: Path) -> None:
    """Cards of the benchmark's domains."""
    folder.mkdir(parents=True)
    for number in range(DOMAINS):
        name = domain(number)
        (folder / f"{name}.toml").write_text(CARD.format(name=name))


def configuration(cards: Path, tasks: int) -> RunConfig:
    """A run's configuration in which nothing but slots and order holds tasks back."""
    return RunConfig(
        name="bench",
        domains=Domains(paths=(str(cards),)),
        scheduler=Scheduler(ready_cap=tasks + 1),
        training=Training(groups_per_step=2 * tasks + 1),
    )


class System:
    """One system, running: its processes and a submitter."""

    def __init__(
        self,
        name: str,
        board: Board,
        folder: Path,
        environment: Mapping[str, str],
        commands: Mapping[str, list[str]],
    ) -> None:
        """Start all. `commands`: what to run as `python -m`, by a name for it. Raises BenchError."""
        self.name, self._folder = name, folder
        ambient = {key: value for key, value in os.environ.items() if not key.startswith("TEMPER_")}
        self._environment = ambient | {VARIABLE: str(board.path)} | dict(environment)
        self._processes: list[Process] = []
        self._submitter: subprocess.Popen[bytes] | None = None
        try:
            for part, command in commands.items():
                self._processes.append(self._start(part, command))
            self._submitter = subprocess.Popen(
                [sys.executable, "-m", f"{MODULE}.submitter", name],
                env=self._environment,
                cwd=PROJECT,
                start_new_session=True,  # Ctrl-C is the benchmark's alone to answer: it ends all in order
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self.submitted()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, request: Request) -> None:
        """Have tasks submitted; `submitted` waits for it."""
        if self._submitter is None or self._submitter.stdin is None:
            raise BenchError(f"{self.name}: no submitter")
        self._submitter.stdin.write(msgspec.json.encode(request) + b"\n")
        self._submitter.stdin.flush()

    def submitted(self) -> None:
        """Wait until the submitter has done what it was told. Raises BenchError if it ended."""
        if self._submitter is None or self._submitter.stdout is None or not self._submitter.stdout.readline():
            raise BenchError(f"{self.name}: its submitter ended; what it said is above")

    def await_(self, done: Callable[[], bool], what: str, deadline_s: float) -> float:
        """Look until `done`; the monotonic time at which it was. Raises BenchError at the deadline or when a process ended."""
        end = time.monotonic() + deadline_s
        while not done():
            for process in self._processes:
                if process.poll() is not None:
                    raise BenchError(f"{self.name}: {process.name} ended: {_last_line(process)}")
            if time.monotonic() > end:
                said = "; ".join(f"{process.name}: {_last_line(process)}" for process in self._processes)
                raise BenchError(f"{self.name}: {what} not within {deadline_s:.0f} s ({said})")
            time.sleep(LOOK_S)
        return time.monotonic()

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds, user and system, that each process and those it waited for have used so far."""
        found = {process.name: _cpu_s(process.pid) for process in self._processes}
        if self._submitter is not None:
            found["submitter"] = _cpu_s(self._submitter.pid)
        return found

    def close(self) -> None:
        """End all."""
        if self._submitter is not None:
            if self._submitter.stdin is not None:
                self._submitter.stdin.close()
            try:
                self._submitter.wait(10)
            except subprocess.TimeoutExpired:
                self._submitter.kill()
                self._submitter.wait(10)
            if self._submitter.stdout is not None:
                self._submitter.stdout.close()
        for process in reversed(self._processes):
            process.stop()

    def _start(self, name: str, command: list[str]) -> Process:
        return Process.start(
            name,
            [sys.executable, "-m", *command],
            log=self._folder / "logs" / f"{self.name}-{name}.log",
            env=self._environment,
            cwd=PROJECT,
            grace_s=15.0,
        )


def ours(board: Board, folder: Path, stack: Stack, prefix: str, config: RunConfig, slots: int) -> System:
    """The scheduler and the light worker, topics being there; returns when the scheduler has begun. Raises BenchError."""
    path = folder / f"{prefix}config.json"
    path.write_bytes(settings.to_json(config))
    environment = {
        "TEMPER_KAFKA": stack.kafka,
        "TEMPER_REDIS": stack.redis,
        "TEMPER_PREFIX": prefix,
        "TEMPER_CONFIG": str(path),
        "TEMPER_RUN_DIR": str(folder),
    }
    commands = {"scheduler": ["services.scheduler"], "worker": [f"{MODULE}.light", str(slots)]}
    return System(OURS, board, folder, environment, commands)


def peer(name: str, board: Board, folder: Path, url: str, parallel: int, window: int) -> System:
    """A peer's workers: `parallel` processes that fetch `window` tasks ahead together. Raises BenchError."""
    each = max(1, window // parallel)
    module = f"{MODULE}.peer_{name}"
    environment = {"TEMPER_BENCH_REDIS": url, "TEMPER_BENCH_EACH": str(each)}
    match name:
        case "celery":
            quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
            commands = {"worker": ["celery", "-A", module, "worker", "--concurrency", str(parallel), *quiet]}
        case "dramatiq":
            environment |= {"dramatiq_queue_prefetch": str(each)}
            commands = {"worker": ["dramatiq", module, "--processes", str(parallel), "--threads", "8"]}
        case _:
            commands = {f"worker-{number}": ["arq", f"{module}.Settings"] for number in range(parallel)}
    return System(name, board, folder, environment, commands)


def finished(client: redis.Redis, prefix: str) -> dict[str, int]:
    """Terminal tasks by state, as the scheduler's projection has them."""
    raw = client.hget(redis_key(prefix), "meta")
    if not isinstance(raw, bytes):
        return {}
    ended: dict[str, int] = msgspec.msgpack.decode(raw)["meta"]["ended"]
    return ended


def _last_line(process: Process) -> str:
    lines = process.output().strip().splitlines()
    return lines[-1] if lines else "no output"


def server_cpu_s(stack: Stack) -> dict[str, float]:
    """Processor seconds of the embedded broker and Redis so far."""
    servers = {"kafka": stack.kafka_server, "redis": stack.redis_server}
    return {name: _cpu_s(server.process.pid) for name, server in servers.items() if server is not None}


def _cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, and of its children now and before."""
    total = 0.0
    for process in (pid, *_children(pid)):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for word in (task / "children").read_text().split():
            found += [int(word), *_children(int(word))]
    return found
