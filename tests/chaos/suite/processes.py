"""The processes of a site. Invariant: each is known by its id, was started by the site, and is gone when the site closes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.suite.child import END_S, Child
from tests.chaos.suite.layout import Layout

PROJECT = Path(__file__).resolve().parents[3]
KILLED = -signal.SIGKILL
FOREVER_S = 6 * 3600.0
"""Nothing that is kept running runs longer."""
BACKOFF_S = 0.3
"""Of a supervisor, before it starts again what has ended."""
ASK_S = 150.0


class Processes:
    """Starts, supervises and ends them; `Site` adds the log."""

    def __init__(self, folder: Path, kafka: str, redis: str, prefix: str, layout: Layout) -> None:
        self.folder, self.kafka, self.redis, self.prefix, self.layout = folder, kafka, redis, prefix, layout
        self.children: dict[str, Child] = {}
        """The newest of each name."""
        self.everyone: list[Child] = []
        """All that ever were."""
        self._kept: dict[str, asyncio.Task[None]] = {}
        self.restarts = 0

    @property
    def environment(self) -> dict[str, str]:
        """Of every process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TEMPER_")}
        return kept | {
            "PYTHONPATH": str(PROJECT),
            "TEMPER_KAFKA": self.kafka,
            "TEMPER_REDIS": self.redis,
            "TEMPER_PREFIX": self.prefix,
            "TEMPER_CONFIG": str(self.folder / "config.json"),
            "TEMPER_RUN_DIR": str(self.folder),
            "TEMPER_DRAIN_S": "10",
            "TEMPER_FAULT_DIR": str(self.folder),
            "TEMPER_CHAOS_WORKER": msgspec.json.encode(self.layout.manner).decode(),
        }

    @property
    def killed(self) -> set[int]:
        """Ids of those that ended by SIGKILL."""
        return {child.pid for child in self.everyone if child.process.poll() == KILLED}

    def start(self, module: str, name: str, **environment: str) -> Child:
        """Start a process under a name; the one that had it must have ended."""
        before = self.children.get(name)
        if before is not None and before.process.poll() is None:
            raise AssertionError(f"{name} still runs")
        path = self.folder / f"{name}.log"
        with path.open("ab") as log:
            since = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                env=self.environment | {"TEMPER_WORKER": name} | environment,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        child = self.children[name] = Child(name, process, path, since)
        child.may_end = bool(environment.get("TEMPER_FAULT"))
        self.everyone.append(child)
        return child

    def scheduler(self, name: str = "scheduler", **environment: str) -> Child:
        """Start a scheduler."""
        return self.start("services.scheduler", name, **environment)

    def worker(self, name: str = "worker-0", **environment: str) -> Child:
        """Start a worker."""
        return self.start("tests.chaos.suite.worker", name, **environment)

    def keep(self, module: str, name: str, **environment: str) -> None:
        """Start a process, and again whenever it ends, as a supervisor would; `kill` ends that."""
        child = self.start(module, name, **environment)

        async def supervise() -> None:
            running = child
            while True:
                status = await running.ended(FOREVER_S)
                if status == 2:  # wrong input: starting again would not help
                    raise AssertionError(f"{name} cannot work: {running.said()[-1000:]}")
                self.restarts += 1
                await asyncio.sleep(BACKOFF_S)
                running = self.start(module, name, **environment)

        self._kept[name] = asyncio.create_task(supervise(), name=f"keep {name}")

    async def let_go(self, name: str) -> None:
        """No more restarts."""
        keeper = self._kept.pop(name, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """End a process by a signal, for good; its exit status."""
        await self.let_go(name)
        child = self.children[name]
        child.may_end = True
        child.signal(signal.SIGCONT)
        child.signal(number)
        return await child.ended()

    async def ask(self, *words: str) -> tuple[int, Any]:
        """A command of the scheduler; its exit status and its JSON (or what it said)."""

        def call() -> tuple[int, Any]:
            done = subprocess.run(
                [sys.executable, "-m", "services.scheduler", *words, "--json"],
                env=self.environment,
                cwd=self.folder,
                capture_output=True,
                timeout=ASK_S,
                check=False,
            )
            return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()

        return await asyncio.to_thread(call)

    def stands(self) -> None:
        """Check that what should run runs.

        Raises:
            AssertionError: something has ended by itself, or cannot be kept running.
        """
        for keeper in self._kept.values():
            if keeper.done():
                keeper.result()
        for name, child in self.children.items():
            if not child.may_end and name not in self._kept and child.process.poll() is not None:
                raise AssertionError(
                    f"{name} ended by itself, status {child.process.poll()}: {child.said().strip()[-1500:]}"
                )

    async def end(self) -> None:
        """End everything that was started."""
        for name in list(self._kept):
            await self.let_go(name)
        for child in self.children.values():
            child.signal(signal.SIGCONT)
            child.signal(signal.SIGKILL)
        for child in self.children.values():
            await child.ended(END_S)
