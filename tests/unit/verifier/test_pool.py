"""The pool against worker processes that do what the submission says; no jail is needed."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from schemas.tasks import Task
from services.verifier import fair, families
from services.verifier.pool import Judged, Pool
from tests.unit.verifier.pools import CARD, OTHER, TASK


def test_verdicts_come_back_and_are_counted(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[Judged], dict[str, float]]:
        return await asyncio.gather(*(pool.judge(TASK, b"a%d" % n) for n in range(5))), pool.stats

    (judged, stats), log = drive(scenario, slots=2)
    assert [each.verdict.score for each in judged] == [0.5] * 5
    assert len(log) == 5
    assert (stats["jobs"], stats["scored"], stats["jail_runs"], stats["jail_cpu_s"]) == (5, 5, 5, 1.25)


def test_the_same_answer_is_executed_once_also_while_it_runs(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[bool]:
        together = await asyncio.gather(*(pool.judge(TASK, b"sleep") for _ in range(4)))
        return [each.cached for each in (*together, await pool.judge(TASK, b"sleep"))]

    cached, log = drive(scenario, cache=10)
    assert cached == [False, True, True, True, True]
    assert log == ["d sleep"]


def test_without_a_cache_every_answer_is_executed(drive: Any) -> None:
    async def scenario(pool: Pool) -> None:
        await asyncio.gather(*(pool.judge(TASK, b"a") for _ in range(3)))

    assert drive(scenario)[1] == ["d a"] * 3


def test_a_share_is_verified_again_and_disagreements_are_counted(drive: Any) -> None:
    async def scenario(pool: Pool) -> dict[str, float]:
        for word in (b"a", b"fickle"):
            await pool.judge(TASK, word)
        while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
            await asyncio.sleep(0.01)
        return dict(pool.stats)

    stats, log = drive(scenario, reverify=1.0, cache=10)
    assert log == ["d a", "d a", "d fickle", "d fickle"]
    assert (stats["reverified"], stats["disagreements"], stats["jobs"]) == (2, 1, 2)


def test_a_domain_with_much_to_do_does_not_hold_up_another(drive: Any) -> None:
    other = Task(id="t", domain="e", prompt="p", spec=TASK.spec)

    async def scenario(pool: Pool) -> None:
        busy = [asyncio.create_task(pool.judge(TASK, b"sleep%d" % n)) for n in range(4)]
        await asyncio.sleep(0.05)
        await asyncio.gather(pool.judge(other, b"a"), *busy)

    log = drive(scenario)[1]
    assert log.index("e a") <= 2


def test_a_full_queue_makes_callers_wait_and_loses_nothing(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        waiting = [asyncio.create_task(pool.judge(TASK, b"b%d" % n)) for n in range(20)]
        await asyncio.sleep(0)
        assert pool.unfinished <= 3
        return await asyncio.gather(*waiting)

    judged, log = drive(scenario, queue_limit=2)
    assert len(judged) == len(log) == 20


def test_an_unknown_domain_is_no_score(drive: Any) -> None:
    judged, log = drive(lambda pool: pool.judge(Task(id="t", domain="nowhere", prompt="p"), b"a"))
    assert judged.verdict.outcome == "infra"
    assert "nowhere" in judged.verdict.evidence
    assert log == []


def test_closing_ends_what_is_waiting(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[asyncio.Task[Judged]]:
        waiting = [asyncio.create_task(pool.judge(TASK, b"sleep%d" % n)) for n in range(6)]
        await asyncio.sleep(0.1)
        await pool.close()
        await asyncio.wait(waiting, timeout=5)
        return waiting

    waiting, _ = drive(scenario)
    assert all(task.done() for task in waiting)
    assert waiting[-1].result().verdict.evidence == "the verifier was stopped"


def test_a_verdict_at_the_wall_limit_is_neither_remembered_nor_compared(drive: Any) -> None:
    async def scenario(pool: Pool) -> dict[str, float]:
        for word in (b"wall", b"wall", b"a"):
            assert not (await pool.judge(TASK, word)).cached
        while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
            await asyncio.sleep(0.01)
        return dict(pool.stats)

    stats, log = drive(scenario, cache=10, reverify=1.0)
    assert log == ["d wall", "d wall", "d a", "d a"]
    assert (stats["reverified"], stats["disagreements"], stats["unsettled"]) == (1, 0, 2)


def test_another_machine_shares_no_cached_verdict(drive: Any) -> None:
    async def scenario(pool: Pool) -> Judged:
        await pool.judge(TASK, b"a")
        pool._image = "another"
        return await pool.judge(TASK, b"a")

    judged, log = drive(scenario, cache=10, image="one")
    assert not judged.cached
    assert log == ["d a", "d a"]


def test_long_jobs_leave_a_slot_to_short_ones(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair, "LONG_S", 0.15)

    async def scenario(pool: Pool) -> tuple[list[str], list[Judged]]:
        ended: list[str] = []

        async def one(task: Task, word: str) -> Judged:
            judged = await pool.judge(task, word.encode())
            ended.append(word)
            return judged

        first = await pool.judge(OTHER, b"a")
        await pool.judge(TASK, b"sleep")  # now it is known to be long
        builds = [asyncio.create_task(one(TASK, f"sleep{n}")) for n in range(3)]
        await asyncio.sleep(0.05)
        checks = [asyncio.create_task(one(OTHER, f"check{n}")) for n in range(5)]
        return ended, [first, *await asyncio.gather(*builds, *checks)]

    (ended, judged), _ = drive(scenario, slots=2)
    assert sorted(ended[:5]) == [f"check{n}" for n in range(5)]
    assert len(judged) == 9


def test_long_jobs_alone_take_all_slots(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair, "LONG_S", 0.05)

    async def scenario(pool: Pool) -> float:
        started = time.monotonic()
        await asyncio.gather(*(pool.judge(TASK, b"sleep%d" % n) for n in range(4)))
        return time.monotonic() - started

    assert drive(scenario, slots=2)[0] < 0.75


def test_a_task_that_cannot_even_be_counted_is_put_through(
    drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(name: str, spec: dict[str, Any]) -> int:
        raise TypeError("a number where a list should be")

    monkeypatch.setattr(families, "runs", runs)
    judged, log = drive(lambda pool: pool.judge(TASK, b"a"))
    assert judged.verdict.outcome == "scored"
    assert log == ["d a"]


def test_two_pools_have_no_number_in_common(drive: Any, tmp_path: Path) -> None:
    async def scenario(pool: Pool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        command = (sys.executable, str(tmp_path / "worker.py"), "work", str(tmp_path / "log"))
        other = Pool({"d": CARD}, tmp_path, command=command, slots=20, margin_s=0.9)
        try:
            await other.start()
            return pool.numbers, other.numbers
        finally:
            await other.close()

    (ours, theirs), _ = drive(scenario, slots=2)
    assert (len(ours), len(theirs), len({*ours, *theirs})) == (2, 20, 22)
