"""Workers that die, hang, babble or grow: no answer is lost, and none of them outlives the pool."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from services.runtime.errors import Unavailable
from services.verifier.jail import JailUnavailable
from services.verifier.pool import Judged, Pool
from tests.unit.verifier.pools import TASK


def test_a_worker_that_dies_is_replaced_and_the_answer_tried_once_more(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[Judged, Judged, Judged, float]:
        once = await pool.judge(TASK, b"die once")
        always = await pool.judge(TASK, b"die")
        return once, always, await pool.judge(TASK, b"a"), pool.stats["workers_lost"]

    (once, always, after, lost), log = drive(scenario)
    assert once.verdict.score == 0.5
    assert (always.verdict.outcome, always.verdict.score) == ("infra", None)
    assert "lost 2 times: it died" in always.verdict.evidence
    assert after.verdict.score == 0.5
    assert lost == 3
    assert log.count("d die") == 2


def test_a_worker_that_hangs_is_killed_with_its_children(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[float, Judged, list[int]]:
        first = pool.pids
        started = time.monotonic()
        judged = await pool.judge(TASK, b"hang")
        return time.monotonic() - started, judged, first

    (took, judged, first), _ = drive(scenario)
    assert judged.verdict.outcome == "infra"
    assert took < 8.0
    for pid in first:
        assert not group_members(pid)


def group_members(group: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(entry.name)
    return found


def test_a_reply_that_is_none_costs_the_worker(drive: Any) -> None:
    judged, _ = drive(lambda pool: pool.judge(TASK, b"babble"))
    assert "no frame" in judged.verdict.evidence


@pytest.mark.parametrize(
    ("mode", "said"), [("unable", "nsjail is missing: install it"), ("silent", "did not start")]
)
def test_no_jail_no_pool(drive: Any, mode: str, said: str) -> None:
    with pytest.raises(JailUnavailable) as caught:
        drive(lambda pool: pool.judge(TASK, b"a"), mode, slots=2)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_when_slots_can_no_longer_be_made_it_fails_and_judges_nothing(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[BaseException | None, bool]:
        asked = asyncio.ensure_future(pool.judge(TASK, b"die"))
        assert pool.failed is not None
        await asyncio.wait({pool.failed}, timeout=20)
        answered = asked.done()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        return pool.failed.exception(), answered

    (error, answered), _ = drive(scenario, mode="able once")
    assert isinstance(error, Unavailable)
    assert "nsjail is missing: install it" in str(error)
    assert not answered


@pytest.mark.parametrize(
    ("word", "said"), [(b"spin", "10 s of processor time"), (b"full", "1024 MiB of memory")]
)
def test_an_answer_that_no_check_survives_is_invalid_after_two_tries(
    drive: Any, word: bytes, said: str
) -> None:
    async def scenario(pool: Pool) -> tuple[Judged, Judged, Judged, dict[str, float]]:
        first = await pool.judge(TASK, word)
        return first, await pool.judge(TASK, word), await pool.judge(TASK, b"a"), dict(pool.stats)

    (first, again, after, stats), log = drive(scenario, cache=10)
    assert (first.verdict.outcome, first.verdict.score) == ("invalid", 0.0)
    assert first.verdict.evidence == f"checking the answer took more than {said}"
    assert (again.cached, after.verdict.score) == (True, 0.5)
    assert log == [f"d {word.decode()}"] * 2 + ["d a"]
    assert (stats["check_overruns"], stats["workers_lost"]) == (1, 2)


def test_a_worker_is_replaced_after_so_many_answers_or_when_it_has_grown(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[int], list[Judged], float]:
        pids, judged = [], []
        for word in (b"a", b"b", b"c", b"d", b"grow", b"e"):
            judged.append(await pool.judge(TASK, word))
            await settled(pool)
            pids += pool.pids
        return pids, judged, pool.stats["workers_recycled"]

    async def settled(pool: Pool) -> None:
        hand = next(iter(pool._crew))
        while not pool.pids or hand.answers >= 3 or hand.memory_bytes > 1 << 20:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    (pids, judged, recycled), log = drive(scenario, recycle=3)
    first, second, third = dict.fromkeys(pids)
    assert pids == [first, first, second, second, third, third]
    assert recycled == 2
    assert len(log) == 6
    assert all(each.verdict.score == 0.5 for each in judged)


def test_workers_that_end_before_they_stand_cost_the_answer_no_try(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[Judged, Judged]:
        return await pool.judge(TASK, b"a"), await pool.judge(TASK, b"die once")

    (_, judged), log = drive(scenario, "late")
    assert log == ["d a", "d die once", "d started", "d die once"]
    assert judged.verdict.outcome == "scored"


def test_but_not_for_ever(drive: Any) -> None:
    judged, log = drive(lambda pool: pool.judge(TASK, b"die"), "never")
    assert log == ["d die"]
    assert "workers ended 5 times before they stood" in judged.verdict.evidence


def test_an_answer_that_no_worker_survives_says_so_and_one_that_was_too_slow_does_not(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        return [await pool.judge(TASK, word) for word in (b"die", b"oom", b"oom once", b"hang")]

    judged, log = drive(scenario)
    assert [(each.verdict.outcome, each.fault) for each in judged] == [
        ("infra", "killed"),
        ("infra", "killed"),
        ("scored", ""),
        ("infra", ""),
    ]
    assert "it died (SIGKILL)" in judged[1].verdict.evidence
    assert log.count("d oom") == 2


def test_what_was_killed_is_judged_again_with_nobody_beside_it(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        neighbours = [pool.judge(TASK, f"nap {n}".encode()) for n in range(8)]
        return await asyncio.gather(*neighbours, pool.judge(TASK, b"oom"))

    judged, log = drive(scenario, slots=3, margin_s=5.0)
    assert [each.fault for each in judged] == [""] * 8 + ["killed"]
    first, second = [at for at, line in enumerate(log) if line == "d oom"]
    before = [line for line in log[:second] if line.startswith(("d nap", "d woke"))]
    assert before.count("d woke") * 2 == len(before), "somebody was at work beside it"
    assert first < second
    assert log.count("d woke") == 8
