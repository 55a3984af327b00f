"""Fifty stages through kill -9 after kill -9: no committed stage runs again, and the verdict is that of a run in peace."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.cards import Card, parse_card
from schemas.ids import group_id, trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.run import Domains, RunConfig, Verifier
from schemas.tasks import Task
from schemas.trajectories import TrajectoryCompleted
from schemas.verdicts import Verdict
from services.runtime import topics
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.verifier import engine
from services.verifier.jail import Slot

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
PROJECT = Path(__file__).resolve().parents[3]
STAGES, FAILING, UNCHANGED = 50, 7, 20
DEADLINE_S = 100.0
CARD = 'name="{name}"\nlayer="tool"\nsummary="s"\ngenerator="g.py:f"\n[verifier]\nfamily="{family}"\n'
BEGINS = re.compile(r"stage (\d+) of (\S+) \S+ begins")


def card() -> Card:
    return parse_card(CARD.format(name="t.long", family="stages"), "card")


def long_task() -> Task:
    """Every stage adds a line to one file, so that a stage on the wrong state, or twice, fails its check.

    One fails; one opens the file and changes nothing. The others make a folder anew, so that whiteouts and opaque folders
    come along, and what an earlier stage had in it must be gone.
    """
    stages: list[dict[str, Any]] = []
    lines = ""
    for number in range(STAGES):
        checks = []
        if number not in (FAILING, UNCHANGED):
            lines += f"{number}\n"
            gone = {"kind": "absent", "path": f"d/{number - 1}"}
            checks = [gone, {"kind": "file", "path": f"d/{number}", "text": str(number)}]
        checks.append({"kind": "file", "path": "trail", "text": lines})
        stages.append({"name": f"s{number}", "checks": checks})
    return Task(id="long", domain="t.long", prompt="p", spec={"files": {}, "stages": stages})


def answer(pause_s: float) -> str:
    """`pause_s` in every stage, for somebody to strike in."""
    usual = "rm -rf d; mkdir d; printf {0} > d/{0}; echo {0} >> trail"
    odd = {FAILING: "echo wrong >> trail; rm -rf d", UNCHANGED: ": >> trail"}
    return "\n".join(f"sleep {pause_s}; {odd.get(n, usual.format(n))}" for n in range(STAGES))


def in_peace(slot: Slot, text: str) -> Verdict:
    return engine.judge(long_task(), card(), text.encode(), slot)


POOL = """
import asyncio, json, os, sys
from pathlib import Path
from schemas.cards import parse_card
from schemas.tasks import Task
from services.verifier.jail.storage import HOME
from services.verifier.keep import Keep
from services.verifier.pool import Pool
from services.verifier.track import Follow
import logging, msgspec
folder, name = Path(sys.argv[1]), sys.argv[2]
logging.basicConfig(filename=folder / f"{name}.log", level=logging.INFO, format="%(created)f %(message)s")
task = msgspec.json.decode((folder / "task.json").read_bytes(), type=Task)
card = parse_card((folder / "card.toml").read_text(), "card")
told = open(folder / "told", "ab", buffering=0)
def tell(stage):
    told.write(json.dumps([stage.number, stage.what.worker, stage.what.runs, stage.what.note, stage.fresh]).encode() + b"\\n")
async def main():
    pool = Pool({task.domain: card}, HOME, slots=1, keep=Keep(str(folder / "blobs")), worker=name)
    await pool.start()
    try:
        judged = await pool.judge(task, (folder / "answer").read_bytes(), Follow("j1 c", tell, int(sys.argv[3]), 3))
    finally:
        await pool.close()
    (folder / "verdict").write_bytes(msgspec.json.encode(judged.verdict))
asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.json").write_bytes(msgspec.json.encode(long_task()))
    (tmp_path / "card.toml").write_text(CARD.format(name="t.long", family="stages"))
    (tmp_path / "pool.py").write_text(POOL)
    (tmp_path / "told").touch()
    return tmp_path


def worker(folder: Path, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(folder / "pool.py"), str(folder), f"w{number}", str(number)],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )


def told(folder: Path) -> list[list[Any]]:
    lines = (folder / "told").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Of the service alone: its workers see it gone and end, as after a crash."""
    process.send_signal(signal.SIGKILL)
    process.wait(10)


def strike(folder: Path, kills: int, seed: int) -> int:
    """Start workers one after the other, each killed somewhere within some of the next stages; returns how many there were."""
    chance = random.Random(seed)
    for number in range(kills):
        process = worker(folder, number)
        goal = len({each[0] for each in told(folder)}) + chance.randint(1, 2 * STAGES // (3 * kills))
        end = time.monotonic() + 30
        while len({each[0] for each in told(folder)}) < goal:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < end, "no stage in 30 s"
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        kill(process)
    assert worker(folder, kills).wait(60) == 0
    return kills + 1


def test_killed_at_random_stages_none_that_was_committed_runs_again(folder: Path, family_slot: Slot) -> None:
    text = answer(0.02)
    (folder / "answer").write_text(text)
    workers = strike(folder, kills=6, seed=5)
    stages = told(folder)
    first: dict[int, list[Any]] = {}
    for each in stages:
        # What is said again, by whomever, is what was said first: number, worker, runs.
        assert first.setdefault(each[0], each)[:4] == each[:4]
    assert sorted(first) == list(range(STAGES))
    assert {each[2] for each in first.values()} == {1}
    assert len({each[1] for each in first.values()}) == workers
    verdict = msgspec.json.decode((folder / "verdict").read_bytes(), type=Verdict)
    assert verdict == in_peace(family_slot, text)
    assert [number for number, each in enumerate(verdict.stages) if not each.passed] == [FAILING]
    assert verdict.stages[UNCHANGED].snapshot == verdict.stages[UNCHANGED - 1].snapshot
    begun = [
        (float(line.split()[0]), int(found[1]), path.stem)
        for path in folder.glob("w*.log")
        for line in path.read_text().splitlines()
        if (found := BEGINS.search(line))
    ]
    begun.sort()
    # Each kill can cost the one stage that was running; whoever began a stage last is who committed it.
    assert STAGES <= len(begun) <= STAGES + workers - 1
    assert {stage: name for _, stage, name in begun} == {stage: each[1] for stage, each in first.items()}


def test_a_lost_snapshot_takes_back_to_the_last_good_one(folder: Path, family_slot: Slot) -> None:
    text = answer(0.0)
    (folder / "answer").write_text(text)
    process = worker(folder, 0)
    end = time.monotonic() + 30
    while len(told(folder)) < 12 and time.monotonic() < end:
        time.sleep(0.005)
    kill(process)
    stood = len(told(folder))
    parts = sorted(
        (folder / "blobs").glob("progress/*/*/parts/*/*"), key=lambda path: path.stat().st_mtime_ns
    )
    damaged = parts[-4:]  # layers and lists of the last stages
    for path in damaged:
        raw = path.read_bytes()
        path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert worker(folder, 1).wait(60) == 0
    again = [each for each in told(folder)[stood:] if each[4] and each[3]]
    assert again
    assert all(each[3].startswith("run again from here: snapshot part") for each in again)
    assert all(each[1] == "w1" for each in again)
    assert min(each[0] for each in again) > 0, "it went back to the start"
    verdict = msgspec.json.decode((folder / "verdict").read_bytes(), type=Verdict)
    assert verdict == in_peace(family_slot, text)


@pytest.fixture
def environment(tmp_path: Path, kafka: str, prefix: str) -> dict[str, str]:
    cards = tmp_path / "cards"
    cards.mkdir()
    for name, family in (("t.long", "stages"), ("t.format", "format")):
        (cards / f"{name}.toml").write_text(CARD.format(name=name, family=family))
    config = RunConfig(domains=Domains(paths=(str(cards),)), verifier=Verifier(slots=1, reverify=0.0))
    path = tmp_path / "config.json"
    path.write_bytes(msgspec.json.encode(config))
    asyncio.run(topics.create(kafka, prefix, ("standard",)))
    return os.environ | {
        "TEMPER_KAFKA": kafka,
        "TEMPER_PREFIX": prefix,
        "TEMPER_CONFIG": str(path),
        "TEMPER_RUN_DIR": str(tmp_path / "run"),
        "TEMPER_BLOBS": str(tmp_path / "blobs"),
    }


@pytest.fixture
def verifier(
    environment: dict[str, str], tmp_path: Path
) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.verifier"],
                cwd=PROJECT,
                env=environment | {"TEMPER_WORKER": name},
                stdout=log,
                stderr=log,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def completed(task: Task, text: str) -> Outgoing:
    group = group_id(task.id, 1)
    event = TrajectoryCompleted(
        trajectory_id=trajectory_id(task.id, 1, 0),
        task=task,
        attempt=1,
        group_id=group,
        group_size=1,
        index=0,
        lease_id="l",
        prompt_ids=[1],
        token_ids=[2],
        logprobs=[-1.0],
        spans=(),
        finish="stop",
        text=text,
    )
    return Outgoing(topic="trajectories", event=event, key=group)


def test_verifiers_of_a_group_take_over_from_each_other(
    environment: dict[str, str], verifier: Any, family_slot: Slot, tmp_path: Path
) -> None:
    text, kills, chance = answer(0.1), 2, random.Random(3)
    processes = {name: verifier(name) for name in ("v0", "v1")}
    log: list[Any] = []

    def checks(count: int) -> list[Outgoing]:
        spec = {"constraints": [{"id": "case:upper"}]}
        tasks = [Task(id=f"f{len(log)}-{n}", domain="t.format", prompt="p", spec=spec) for n in range(count)]
        return [completed(task, "AB") for task in tasks]

    async def go() -> None:
        producer = Producer(environment["TEMPER_KAFKA"], environment["TEMPER_PREFIX"], "test")
        reader = LogReader(
            environment["TEMPER_KAFKA"], environment["TEMPER_PREFIX"], ["rewards"], start="earliest"
        )
        await producer.start()
        await reader.start()
        end = time.monotonic() + DEADLINE_S

        async def until(enough: Callable[[], bool]) -> None:
            while not enough():
                assert time.monotonic() < end, f"{len(stages(log))} stages after {DEADLINE_S:.0f} s"
                log.extend(await reader.poll(0.1))

        try:
            await producer.emit(completed(long_task(), text), *checks(20))
            for number in range(kills):
                seen = len(stages(log)) + chance.randint(4, 12)
                await until(lambda seen=seen: len(stages(log)) >= seen)  # type: ignore[misc]
                victim = list(stages(log).values())[-1].worker
                kill(processes.pop(victim))
                name = f"v{number + 2}"
                processes[name] = verifier(name)
                await producer.emit(*checks(20))
            seen = len(stages(log)) + 4
            await until(lambda: len(stages(log)) >= seen)
            drained = list(stages(log).values())[-1].worker
            processes["v9"] = verifier("v9")
            processes[drained].send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(processes[drained].wait, 30) == 0
            assert len(stages(log)) < STAGES
            await until(lambda: any(each.task_id == "long" for each in verdicts(log)))
            await until(lambda: len({each.task_id for each in verdicts(log)}) == 20 * (kills + 1) + 1)
        finally:
            await reader.stop()
            await producer.stop()

    asyncio.run(go())
    by_id: dict[str, set[bytes]] = {}
    for record in log:
        if isinstance(record.event, StageVerified):
            by_id.setdefault(record.envelope.id, set()).add(msgspec.json.encode(record.event))
    assert len(by_id) == STAGES
    assert all(len(bodies) == 1 for bodies in by_id.values()), "a stage was told in two ways"
    found = stages(log)
    assert sorted(found) == list(range(STAGES))
    assert len({each.worker for each in found.values()}) == kills + 2
    final = next(each for each in verdicts(log) if each.task_id == "long")
    assert final.verdict == in_peace(family_slot, text)
    # Format checks did not wait for the fifty stages, though there is one slot and one process for most of them.
    order = [each.task_id for each in verdicts(log)]
    assert order.index("long") >= 20 * kills
    begun = [
        (int(match[1]), path.stem)
        for path in tmp_path.glob("v*.log")
        for match in BEGINS.finditer(path.read_text())
    ]
    assert STAGES <= len(begun) <= STAGES + kills  # a drained one finishes the stage it is at
    for stage, each in found.items():
        assert (stage, each.worker) in begun
    kept = list((tmp_path / "blobs").glob("progress/*/*/*"))
    assert {path.name for path in kept} <= {"record", "lock", "parts"}


def stages(log: list[Any]) -> dict[int, StageVerified]:
    return {record.event.stage: record.event for record in log if isinstance(record.event, StageVerified)}


def verdicts(log: list[Any]) -> list[TrajectoryVerified]:
    return [record.event for record in log if isinstance(record.event, TrajectoryVerified)]
