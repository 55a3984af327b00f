"""The verifier process on the real broker: verdicts once, bad records aside, a drain on SIGTERM, a kill survived."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.events import REGISTRY
from schemas.heartbeats import WorkerHeartbeat
from schemas.ids import group_id, trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.run import Domains, RunConfig, Verifier
from schemas.tasks import Task
from schemas.trajectories import TrajectoryAbandoned, TrajectoryCompleted, content_digest
from services.runtime import topics
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader

pytestmark = pytest.mark.integration
PROJECT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0
CARDS: dict[str, tuple[str, dict[str, Any]]] = {
    "t.code": (
        "code",
        {"entry": "f", "kind": "expression", "params": ["q"], "cases": [{"args": [2], "want": 5}]},
    ),
    "t.stages": (
        "stages",
        {"files": {}, "stages": [{"name": "s", "checks": [{"kind": "file", "path": "a", "text": "x"}]}]},
    ),
    "t.format": ("format", {"constraints": [{"id": "case:upper"}]}),
    "t.broken": ("code", {"entry": "f", "kind": "expression", "params": ["q"], "cases": []}),
}


@pytest.fixture
def environment(tmp_path: Path, kafka: str, prefix: str) -> dict[str, str]:
    cards = tmp_path / "cards"
    cards.mkdir()
    for name, (family, _) in CARDS.items():
        (cards / f"{name}.toml").write_text(
            f'name="{name}"\nlayer="tool"\nsummary="s"\ngenerator="g.py:f"\n[verifier]\nfamily="{family}"\n'
        )
    config = RunConfig(domains=Domains(paths=(str(cards),)), verifier=Verifier(reverify=0.2, heartbeat_s=0.2))
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(config))
    asyncio.run(topics.create(kafka, prefix, ("standard",)))
    return os.environ | {
        "TEMPER_KAFKA": kafka,
        "TEMPER_PREFIX": prefix,
        "TEMPER_CONFIG": str(path),
        "TEMPER_RUN_DIR": str(tmp_path / "run"),
        "TEMPER_WORKER": "verifier-test",
    }


@pytest.fixture
def verifier(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "verifier.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.verifier"],
                cwd=PROJECT,
                env=environment,
                stderr=log,
                stdout=log,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def completed(domain: str, number: int, text: str, **more: Any) -> Outgoing:
    task = Task(id=f"{domain}-{number}", domain=domain, prompt="p", spec=CARDS[domain][1])
    group = group_id(task.id, 1)
    given: dict[str, Any] = {
        "trajectory_id": trajectory_id(task.id, 1, 0),
        "task": task,
        "attempt": 1,
        "group_id": group,
        "group_size": 1,
        "index": 0,
        "lease_id": "l",
        "prompt_ids": [1],
        "token_ids": [2],
        "logprobs": [-1.0],
        "spans": (),
        "finish": "stop",
        "text": text,
    }
    return Outgoing(topic="trajectories", event=TrajectoryCompleted(**(given | more)), key=group)


def exchange(environment: dict[str, str], *outgoing: Outgoing, raw: tuple[bytes, ...] = ()) -> None:
    async def go() -> None:
        producer = Producer(environment["TEMPER_KAFKA"], environment["TEMPER_PREFIX"], "test")
        await producer.start()
        try:
            await producer.emit(*outgoing)
            for value in raw:
                await producer.send_raw("trajectories", value, b"k", [])
        finally:
            await producer.stop()

    asyncio.run(go())


def read_until(environment: dict[str, str], topic: str, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """Records of a topic from the start, until `enough` or the deadline."""

    async def go() -> list[Any]:
        reader = LogReader(
            environment["TEMPER_KAFKA"], environment["TEMPER_PREFIX"], [topic], start="earliest"
        )
        await reader.start()
        found: list[Any] = []
        end = time.monotonic() + DEADLINE_S
        try:
            while time.monotonic() < end and not enough(found):
                found += await reader.poll(0.3)
        finally:
            await reader.stop()
        return found

    return asyncio.run(go())


def verdicts(records: list[Any]) -> list[TrajectoryVerified]:
    return [record.event for record in records if isinstance(record.event, TrajectoryVerified)]


def test_every_trajectory_gets_its_verdict(environment: Any, verifier: Any, tmp_path: Path) -> None:
    assert ("TrajectoryVerified", 1) in REGISTRY
    process = verifier()
    abandoned = TrajectoryAbandoned(
        trajectory_id="gone",
        task_id="t",
        domain="t.code",
        purpose="train",
        attempt=1,
        group_id="g",
        group_size=1,
        index=0,
        lease_id="l",
        reason="drain",
    )
    sent = [
        completed("t.code", 1, "q*2+1"),
        completed("t.code", 2, "q*2"),
        completed("t.code", 3, "q*2"),
        completed("t.code", 4, ""),
        completed("t.format", 5, "AB"),
        completed("t.stages", 6, "echo x>a"),
        completed("t.broken", 7, "q"),
        completed("t.code", 8, "q*2", text_ref=None),
        Outgoing(topic="trajectories", event=abandoned, key="g"),
    ]
    exchange(environment, *sent, raw=(b"\xff not an event", b'{"id":"x"}'))
    records = read_until(environment, "rewards", lambda found: len(verdicts(found)) >= len(sent))
    found = {each.task_id: each for each in verdicts(records)}
    assert [
        found[name].verdict.score for name in ("t.code-1", "t.code-2", "t.code-4", "t.format-5", "t.stages-6")
    ] == [
        1.0,
        0.0,
        0.0,
        1.0,
        1.0,
    ]
    assert found["t.code-4"].verdict.outcome == "invalid"
    assert found["t.code-1"].content == content_digest([2], "q*2+1")
    assert sum(found[f"t.code-{n}"].cached for n in (2, 3, 8)) == 2
    broken = found["t.broken-7"].verdict
    assert (broken.outcome, broken.score) == ("infra", None)
    assert "spec.cases is empty" in broken.evidence
    assert found["t"].verdict.outcome == "infra"
    stage = next(record for record in records if isinstance(record.event, StageVerified))
    assert stage.event.result.passed
    beats = read_until(
        environment,
        "heartbeats",
        lambda all_: any(b.event.stats.get("consumer_dead_letters") == 2 for b in all_),
    )
    last = beats[-1].event
    assert isinstance(last, WorkerHeartbeat)
    assert (last.service, last.worker, last.stats["consumer_dead_letters"]) == (
        "verifier",
        "verifier-test",
        2,
    )
    assert last.slots >= 1
    assert {"reverified", "disagreements", "breakers_open", "workers_recycled", "check_overruns"} <= set(
        last.stats
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(25) == 0, (tmp_path / "verifier.log").read_text()


def lasting(event: TrajectoryVerified) -> str:
    """The event's bytes without what is measured: another process needs other seconds."""
    plain = msgspec.structs.replace(event, cached=False, queued_s=0.0, duration_s=0.0)
    return msgspec.json.encode(plain).decode()


def test_a_killed_verifier_loses_nothing_and_leaves_nothing(environment: Any, verifier: Any) -> None:
    first = verifier()
    many = [completed("t.code", n, f"q*2+{n % 7}+0*{n}") for n in range(120)]
    exchange(environment, *many)
    read_until(environment, "rewards", lambda found: len(verdicts(found)) >= 20)
    children = subprocess.run(
        ["pgrep", "-P", str(first.pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    first.kill()
    first.wait(10)
    verifier()
    records = read_until(
        environment, "rewards", lambda found: len({each.task_id for each in verdicts(found)}) >= len(many)
    )
    ids: dict[str, set[str]] = {}
    for record in records:
        if isinstance(record.event, TrajectoryVerified):
            ids.setdefault(record.event.task_id, set()).add(f"{record.envelope.id} {lasting(record.event)}")
    assert len(ids) == len(many)
    # What was verified twice was verified alike, under the same id.
    assert all(len(seen) == 1 for seen in ids.values())
    end = time.monotonic() + 15
    while any(Path("/proc", pid).exists() for pid in children) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [pid for pid in children if Path("/proc", pid).exists()]
