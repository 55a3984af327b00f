"""Honest and hostile answers of all families while workers are killed at random: each gets its verdict, nothing is left.

The short form runs with all tests; TEMPER_CAMPAIGN=long (make campaign) has a thousand answers, and five hundred verdicts
that are computed twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from schemas.cards import Card, parse_card
from schemas.tasks import Task
from services.runtime.catalog import Catalog
from services.verifier.engine import ANSWER_LIMIT
from services.verifier.jail import JailUnavailable, probe
from services.verifier.jail.slot import FIRST_UID, UIDS_PER_SLOT
from services.verifier.jail.storage import HOME
from services.verifier.pool import Judged, Pool

PROJECT = Path(__file__).resolve().parents[2]
LONG = os.environ.get("TEMPER_CAMPAIGN") == "long"
JOBS, TWICE = (1000, 520) if LONG else (150, 64)
SEED = 20_261
KILL_AFTER = (3, 12)
"""Answers from one kill to the next, drawn evenly."""
HONEST = 0.6
QUEUE = 64
Answer = tuple[Task, bytes]
NUMBERS: set[int] = set()
"""Of all slots that our pools have had."""
pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1800 if LONG else 400)]

FUNCTION = {
    "entry": "f",
    "kind": "function",
    "params": ["a"],
    "cases": [{"args": [n], "want": n * n + 1} for n in (2, 3, 5)],
}
FILES = {
    "files": {"in": "1\n"},
    "checks": [{"kind": "file", "path": "out", "text": "1\n"}],
    "protected": ["in"],
}
STAGES = {
    "files": {},
    "stages": [
        {"name": name, "checks": [{"kind": "file", "path": name, "text": "1\n"}]} for name in ("a", "b")
    ],
}
PYTHON = (
    "import sys\nsys.exit(0)",
    "import os\ndef f(a):\n    os._exit(0)",
    "import os\nwhile True: os.fork()",
    "def f(a):\n    while True: pass",
    "def f(a):\n    return 'x' * (1 << 30)",
    "def f(a):\n    x = [0]\n    while True: x = x + x",
    "import os\ndef f(a):\n    while True: os.write(1, b'y' * 65536)",
    "import os, signal\ndef f(a):\n    os.kill(-1, signal.SIGKILL)",
    "import os\ndef f(a):\n    if os.fork() == 0:\n        os.setsid()\n        while True: pass\n    return a * a + 1",
    "class A(int):\n    __eq__ = lambda s, o: True\ndef f(a): return A(0)",
    "import threading, time\ndef f(a):\n    for _ in range(100): threading.Thread(target=time.sleep, args=(60,)).start()",
    "def f(a): return f(a)",
)
SHELL = (
    ":(){ :|:& };:",
    "yes",
    "cat /dev/zero >full",
    "i=0; while :; do : >f$i; i=$((i+1)); done",
    "(setsid sleep 60 &) ; echo 1 >out",
    "kill -9 -1",
    "echo PASSED; exit 0",
    "ln -s /etc/passwd out; mkfifo in2",
    "while :; do :; done",
    "mkdir -p d/d/d/d; rm -rf in; echo 1 >out",
    "x=aaaaaaaa; while :; do x=$x$x; done",
    "truncate -s 1T out",
)
TEXTS = (
    b"\xff\xfe\x00",
    b"[" * 60_000,
    b"{" * 60_000,
    b"a" * 65_536,
    b"x" * 70_000,
    b"- a\n" * 16_000,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    b"1e999999999",
    b"NaN",
    b"((((" * 15_000,
    ("a\u0301\u202e" * 9000).encode(),
    b"\0" * 1000,
)
SOLIDS = (
    "s=box(1,1,1)\nfor _ in range(5000): s=s+s\nshape=s",
    "while True: pass",
    "box(1e308,1e308,1e308)",
    "box(float('nan'),4,4)",
    "import os; os._exit(0)",
    "[[]]" * 1000,
)


def own_cards() -> dict[str, Card]:
    """Cards of the hostile answers: short limits, the wall ten times the processor time, so that load decides nothing."""
    made = {}
    for family in ("code", "terminal", "stages"):
        text = f'name="own.{family}"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="{family}"\n'
        made[f"own.{family}"] = parse_card(text + "[limits]\nwall_s=10.0\ncpu_s=1.0\nmemory_mib=64\n", family)
    return made


def answers(catalog: Catalog, count: int, rng: random.Random) -> list[Answer]:
    """`count` answers, honest ones of every domain (right, wrong, empty) and hostile ones of every family."""
    drawn = {name: catalog.sample(name, split="heldout", seed=SEED, count=6) for name in catalog.cards}
    texts = [
        name for name in drawn if catalog.card(name).verifier.family not in ("code", "terminal", "stages")
    ]
    own: dict[str, tuple[dict[str, Any], list[bytes]]] = {
        "own.code": (FUNCTION, [text.encode() for text in PYTHON]),
        "own.terminal": (FILES, [text.encode() for text in SHELL]),
        "own.stages": (STAGES, [f"{text}\necho 1 >b".encode() for text in SHELL]),
    }
    found: list[Answer] = []
    names = sorted(drawn)
    for number in range(count):
        if rng.random() < HONEST:
            each = rng.choice(drawn[names[number % len(names)]])
            found.append((each.task, rng.choice([each.gold, each.gold, *each.slips[:2], ""]).encode()))
        elif rng.random() < 0.6:
            domain = rng.choice(sorted(own))
            spec, hostile = own[domain]
            found.append(
                (Task(id=f"own-{number}", domain=domain, prompt="p", spec=spec), rng.choice(hostile))
            )
        else:
            task = rng.choice(drawn[rng.choice(texts)]).task
            solid = catalog.card(task.domain).verifier.family == "geometry"
            found.append((task, rng.choice(SOLIDS).encode() if solid else rng.choice(TEXTS)))
    return found


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    try:
        probe()
    except JailUnavailable as error:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"no jail on this machine: {error}")
    return Catalog.load((str(PROJECT / "domains"),), ("*",), ())


@pytest.fixture
def killed() -> list[int]:
    """Process ids of the workers that were killed."""
    return []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: list[int]) -> Iterator[Path]:
    """Where slots and temporary files go; nothing may be in it, or anywhere else, afterwards."""
    slots, temporary = tmp_path / "slots", tmp_path / "tmp"
    slots.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    yield slots
    end = time.monotonic() + 5
    while left(killed) and time.monotonic() < end:
        time.sleep(0.05)  # the last killed ones are dying
    assert left(killed) == {}
    assert list(slots.iterdir()) == []
    assert list(temporary.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def left(killed: Sequence[int]) -> dict[str, list[str]]:
    """What this process's pools, and the workers killed in them, have left: cgroups, mounts, folders, processes."""
    marks = [f"temper-v{os.getpid()}-", *(f"temper-probe-{pid}-" for pid in killed)]
    uids = {str(FIRST_UID + n * UIDS_PER_SLOT + k) for n in NUMBERS for k in range(UIDS_PER_SLOT)}

    def marked(text: str) -> bool:
        return any(mark in text for mark in marks)

    found = {
        "cgroups": [path for path, _, _ in os.walk("/sys/fs/cgroup") if marked(path)],
        "mounts": [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if marked(line)],
        "folders": [path.name for path in HOME.iterdir() if marked(path.name)],
        "processes": [path.name for path in Path("/proc").glob("[0-9]*") if ours(path, marks, uids)],
    }
    return {kind: names for kind, names in found.items() if names}


def ours(process: Path, marks: list[str], uids: set[str]) -> bool:
    with suppress(OSError):  # it ends while we look
        lines = (process / "status").read_text().splitlines()
        owner = next(line.split()[1] for line in lines if line.startswith("Uid:"))
        command = (process / "cmdline").read_bytes().decode(errors="replace")
        return owner in uids or any(mark in command for mark in marks)
    return False


@asynccontextmanager
async def running(cards: Mapping[str, Card], root: Path, **options: Any) -> Any:
    pool = Pool(cards, root, slots=2, queue_limit=QUEUE, **options)
    await pool.start()
    NUMBERS.update(pool.numbers)
    try:
        yield pool
    finally:
        await pool.close()


async def kill_at_random(pool: Pool, rng: random.Random, killed: list[int]) -> None:
    """Kill -9 one worker after another, only the worker itself, until cancelled; paced by answers, not by a busy machine."""
    while True:
        goal = pool.stats["jobs"] + rng.randint(*KILL_AFTER)
        while pool.stats["jobs"] < goal:  # noqa: ASYNC110 (answers have no event that all can wait for)
            await asyncio.sleep(0.01)
        await asyncio.sleep(rng.uniform(0.0, 0.1))  # anywhere in what the worker does then
        if pool.pids:
            pid = rng.choice(pool.pids)
            with suppress(ProcessLookupError):  # killed, not yet noticed
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)


async def campaign(
    cards: Mapping[str, Card], root: Path, jobs: list[Answer], killed: list[int] | None = None
) -> tuple[list[Judged], dict[str, float]]:
    """Judge all; with a list for the killed, under fire. Returns the verdicts and the pool's counters."""
    async with running(cards, root) as pool:
        judging = asyncio.gather(*(pool.judge(task, raw) for task, raw in jobs))
        firing = []
        if killed is not None:
            firing.append(asyncio.create_task(kill_at_random(pool, random.Random(SEED), killed)))
        try:
            judged: list[Judged] = await judging
        finally:
            for task in firing:
                task.cancel()
            await asyncio.gather(*firing, return_exceptions=True)
        return judged, dict(pool.stats)


def test_every_answer_gets_its_verdict_while_workers_die(
    catalog: Catalog, folder: Path, killed: list[int]
) -> None:
    cards = {**catalog.cards, **own_cards()}
    jobs = answers(catalog, JOBS, random.Random(SEED))
    begun = time.monotonic()
    calm, _ = asyncio.run(campaign(cards, folder, jobs))
    fired, stats = asyncio.run(campaign(cards, folder, jobs, killed))
    assert (len(calm), len(fired)) == (JOBS, JOBS)
    assert len(killed) >= JOBS // 20
    assert stats["workers_lost"] >= len(killed) / 2
    faults = [each.verdict.evidence for each in calm if each.verdict.outcome == "infra"]
    assert faults == []
    lost = 0
    for (task, raw), before, after in zip(jobs, calm, fired, strict=True):
        if after.verdict.outcome == "infra":
            assert "worker was lost 2 times" in after.verdict.evidence, after.verdict.evidence
            lost += 1
            continue
        assert after.verdict.digest == before.verdict.digest, (
            task.domain,
            raw[:200],
            before.verdict,
            after.verdict,
        )
    assert lost <= JOBS // 20
    families = Counter(cards[task.domain].verifier.family for task, _ in jobs)
    assert set(families) == {"code", "terminal", "document", "geometry", "call", "format", "stages"}
    scores = Counter(each.verdict.outcome for each in calm)
    print(  # noqa: T201 (with -s, the figures of a campaign)
        f"{JOBS} answers {dict(families)}, {dict(scores)}, {len(killed)} kills, {lost} lost twice, "
        f"{time.monotonic() - begun:.0f} s"
    )


def test_a_second_verdict_is_the_same(catalog: Catalog, folder: Path) -> None:
    cards = {**catalog.cards, **own_cards()}
    jobs = answers(catalog, TWICE, random.Random(SEED + 1))

    async def go() -> dict[str, float]:
        async with running(cards, folder, reverify=1.0) as pool:
            for start in range(0, len(jobs), QUEUE // 2):
                part = jobs[start : start + QUEUE // 2]
                await asyncio.gather(*(pool.judge(task, raw) for task, raw in part))
                while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
                    await asyncio.sleep(0.02)
            return dict(pool.stats)

    stats = asyncio.run(go())
    assert stats["infra"] == 0
    assert stats["disagreements"] == 0
    # What is too long is decided by its size alone; what met its wall limit is not compared.
    looked_at = sum(len(raw) <= ANSWER_LIMIT for _, raw in jobs)
    assert stats["reverified"] == looked_at - stats["unsettled"]
    assert stats["reverified"] >= (500 if LONG else 60)
    print(  # noqa: T201 (with -s, the figures of a campaign)
        f"{len(jobs)} answers, {stats['reverified']:.0f} verdicts computed twice, {stats['disagreements']:.0f} disagree, "
        f"{stats['unsettled']:.0f} not compared"
    )
