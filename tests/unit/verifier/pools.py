"""A pool of worker processes that do what the submission says; no jail is needed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from services.verifier.breaker import Breaker
from services.verifier.pool import Pool

CARD = parse_card(
    'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="format"\n[limits]\nwall_s=0.1\n',
    "card",
)
TASK = Task(id="t", domain="d", prompt="p", spec={"constraints": [{"id": "case:upper"}]})
WORKER = """
import os, sys, time
from pathlib import Path
from services.verifier.frames import HEAD, Ready, Reply, Request, encode, size
from schemas.verdicts import Part, infra, scored
import msgspec
mode, log = sys.argv[1], Path(sys.argv[2])
out, source = sys.stdout.buffer, sys.stdin.buffer
def send(frame):
    out.write(frame); out.flush()
if mode == "unable" or (mode == "able once" and log.read_text()):
    send(encode(Ready(error="nsjail is missing: install it")))
    raise SystemExit(3)
if mode == "silent":
    raise SystemExit(1)
if mode == "late" and 1 < log.read_text().count("d") < 4:
    with log.open("a") as file:
        file.write("d started\\n")
    raise SystemExit(1)
if mode == "never" and log.read_text():
    raise SystemExit(1)
send(encode(Ready(isolation="none: a test")))
while head := source.read(HEAD):
    request = msgspec.msgpack.decode(source.read(size(head)), type=Request)
    word = request.submission.decode()
    with log.open("a") as file:
        file.write(f"{request.task.domain} {word}\\n")
    lines = log.read_text().splitlines()
    if word == "die" or (word == "die once" and lines.count(f"{request.task.domain} {word}") == 1):
        os._exit(1)
    if word == "hang":
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
    if word == "babble":
        send(b"\\0\\0\\0\\4zzzz")
        continue
    if word.startswith("sleep"):
        time.sleep(0.2)
    if word.startswith("nap"):
        time.sleep(0.2)
        with log.open("a") as file:
            file.write("d woke\\n")
    if word == "oom" or (word == "oom once" and lines.count(f"{request.task.domain} {word}") == 1):
        os.kill(os.getpid(), 9)
    if word.startswith("fault"):
        send(encode(Reply(verdict=infra(f"no room for {word}"))))
        continue
    if word == "spin":
        os.kill(os.getpid(), 27)
    if word == "full":
        os._exit(76)
    score = len(lines) / 1000 if word == "fickle" else 0.5
    send(encode(Reply(
        verdict=scored([Part(name="p", weight=1.0, score=score)]), jail_runs=1, jail_cpu_s=0.25,
        settled=not word.startswith("wall"), memory_bytes=1 << 30 if word == "grow" else 1000,
    )))
"""


@pytest.fixture
def drive(tmp_path: Path) -> Callable[..., Any]:
    """Run `scenario(pool)` on a started pool and check that no worker outlives it; returns what the workers executed."""
    script, log = tmp_path / "worker.py", tmp_path / "log"
    script.write_text(WORKER)
    log.touch()

    def run(
        scenario: Callable[[Pool], Awaitable[Any]], mode: str = "work", **options: Any
    ) -> tuple[Any, list[str]]:
        async def go() -> Any:
            command = (sys.executable, str(script), mode, str(log))
            domains = {"d": CARD, "e": CARD}
            pool = Pool(domains, tmp_path, command=command, **({"slots": 1, "margin_s": 0.9} | options))
            await pool.start()
            pids = pool.pids
            try:
                async with asyncio.timeout(30):
                    return await scenario(pool)
            finally:
                pids += pool.pids
                await pool.close()
                assert not any(alive(pid) for pid in pids)

        return asyncio.run(go()), log.read_text().splitlines()

    return run


def alive(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


def breaker(threshold: int = 3, pause_s: float = 60.0) -> Breaker:
    return Breaker(threshold, pause_s, 600.0)


OTHER = Task(id="t", domain="e", prompt="p", spec=TASK.spec)
