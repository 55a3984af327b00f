"""A domain whose answers end in faults of ours: it is not judged for a while, what waits is answered, and no other is touched."""

from __future__ import annotations

import asyncio
from typing import Any

from services.verifier.pool import Judged, Pool
from services.verifier.track import HandedBackError
from tests.unit.verifier.pools import OTHER, TASK, breaker


def test_a_domain_of_faults_is_not_judged_for_a_while_and_no_other_is_touched(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[Judged], Judged, dict[str, float]]:
        faults = [await pool.judge(TASK, b"fault%d" % n) for n in range(5)]
        return faults, await pool.judge(OTHER, b"a"), dict(pool.stats)

    (faults, other, stats), log = drive(scenario, breaker=breaker(), cache=10)
    assert log == ["d fault0", "d fault1", "d fault2", "e a"]
    assert [each.verdict.outcome for each in faults] == ["infra"] * 5
    assert faults[3].verdict.evidence == faults[4].verdict.evidence
    assert "3 faults in a row" in faults[3].verdict.evidence
    assert faults[3].verdict.evidence.endswith("the last: no room for fault2")
    assert other.verdict.score == 0.5
    assert (stats["breakers_opened"], stats["breakers_open"], stats["refused"]) == (1, 1, 2)
    assert stats["jobs"] == 6


def test_what_waits_when_the_breaker_opens_is_answered_too(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        return await asyncio.gather(*(pool.judge(TASK, b"fault%d" % n) for n in range(20)))

    judged, log = drive(scenario, breaker=breaker())
    assert len(log) == 3
    assert all(each.verdict.outcome == "infra" for each in judged)


def test_after_the_pause_a_good_probe_opens_the_domain_again(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[Judged], dict[str, float]]:
        for n in range(3):
            await pool.judge(TASK, b"fault%d" % n)
        refused = await pool.judge(TASK, b"a")
        await asyncio.sleep(0.3)
        probe, meanwhile = await asyncio.gather(pool.judge(TASK, b"sleep"), after(0.1, pool, b"b"))
        return [refused, probe, meanwhile, await pool.judge(TASK, b"c")], dict(pool.stats)

    async def after(seconds: float, pool: Pool, word: bytes) -> Judged:
        await asyncio.sleep(seconds)
        return await pool.judge(TASK, word)

    (judged, stats), log = drive(scenario, breaker=breaker(pause_s=0.3), slots=2)
    assert [each.verdict.outcome for each in judged] == ["infra", "scored", "infra", "scored"]
    assert log[3:] == ["d sleep", "d c"]
    assert stats["breakers_open"] == 0


def test_when_all_answers_of_a_domain_overrun_it_is_taken_for_our_fault(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[str]:
        return [(await pool.judge(TASK, b"spin")).verdict.outcome for _ in range(3)]

    assert drive(scenario, breaker=breaker(2))[0] == ["invalid", "invalid", "infra"]


def test_while_a_domain_is_not_judged_its_answers_wait_and_none_spends_a_try(drive: Any) -> None:
    """The fault passes after three verdicts: all that waited, in the line or before it, are judged then."""

    async def scenario(pool: Pool) -> tuple[list[Judged], list[Judged], Judged, dict[str, float]]:
        faults = [await pool.judge(TASK, b"fault%d" % n) for n in range(3)]
        held = [asyncio.create_task(pool.judge(TASK, b"good%d" % n)) for n in range(6)]
        held += [asyncio.create_task(pool.judge(TASK, b"good0")) for _ in range(2)]
        other = await pool.judge(OTHER, b"a")
        return faults, await asyncio.gather(*held), other, dict(pool.stats)

    (faults, held, other, stats), log = drive(scenario, breaker=breaker(pause_s=0.3), hold=20, cache=20)
    assert [each.verdict.outcome for each in faults] == ["infra"] * 3
    assert [each.verdict.score for each in (*held, other)] == [0.5] * 9
    assert log[3] == "e a"
    assert sorted(log[4:]) == [f"d good{n}" for n in range(6)]
    assert (stats["refused"], stats["breakers_open"], stats["jobs"]) == (0, 0, 12)


def test_what_is_in_the_line_when_the_breaker_opens_waits_as_well(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        words = [b"fault%d" % n for n in range(3)] + [b"good%d" % n for n in range(6)]
        return await asyncio.gather(*(pool.judge(TASK, word) for word in words))

    judged, log = drive(scenario, breaker=breaker(pause_s=0.2), hold=20)
    assert [each.verdict.outcome for each in judged] == ["infra"] * 3 + ["scored"] * 6
    assert sorted(log[3:]) == [f"d good{n}" for n in range(6)]


def test_answers_that_wait_do_not_keep_the_pool_from_ending(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Any]:
        for n in range(3):
            await pool.judge(TASK, b"fault%d" % n)
        held = [asyncio.create_task(pool.judge(TASK, b"good%d" % n)) for n in range(3)]
        held.append(asyncio.create_task(pool.judge(TASK, b"good0")))
        await asyncio.sleep(0.05)
        pool.hand_back()
        return await asyncio.gather(*held, return_exceptions=True)

    found, log = drive(scenario, breaker=breaker(), hold=20, cache=20)
    assert [type(each) for each in found] == [HandedBackError] * 4
    assert len(log) == 3
