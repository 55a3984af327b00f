"""Answers wait while their domain is not judged, bounded in number and in time, and none is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from services.verifier.breaker import Breaker
from services.verifier.gate import Gate
from services.verifier.track import HandedBackError

SOON, LATE, PROBE_S = 0.05, 20.0, 60.0


def shut(most: int, pause_s: float = SOON) -> Gate:
    """A gate whose domain `d` has just opened its breaker."""
    gate = Gate(Breaker(2, pause_s, 10.0), most)
    gate.note("d", "no disk")
    gate.note("d", "no disk")
    return gate


def ends(seconds: float) -> float:
    return time.monotonic() + seconds


def test_one_goes_as_a_probe_and_all_when_it_is_good() -> None:
    async def go() -> None:
        gate = shut(8)
        waiting = [asyncio.create_task(gate.enter("d", ends(LATE), PROBE_S)) for _ in range(5)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert [task.result() for task in done] == [("", True)]
        await asyncio.sleep(0.02)
        assert (sum(task.done() for task in waiting), gate.waiting) == (1, 4)
        assert await gate.enter("e", ends(LATE), PROBE_S) == ("", False)
        gate.note("d", "")
        assert sorted(await asyncio.gather(*waiting)) == [("", False)] * 4 + [("", True)]
        assert (gate.waiting, gate.refused, gate.opened, gate.open_count) == (0, 0, 1, 0)

    asyncio.run(go())


def test_a_bad_probe_lets_nobody_else_go_before_the_next_pause() -> None:
    async def go() -> None:
        gate = shut(8)
        waiting = [asyncio.create_task(gate.enter("d", ends(LATE), PROBE_S)) for _ in range(3)]
        for left in (2, 1, 0):
            done, _ = await asyncio.wait(
                [task for task in waiting if not task.done()],
                return_when=asyncio.FIRST_COMPLETED,
                timeout=5,
            )
            assert [task.result() for task in done] == [("", True)]
            assert gate.waiting == left
            gate.note("d", "no disk yet")
        assert gate.opened == 4

    asyncio.run(go())


def test_beyond_its_number_and_beyond_its_time_it_is_refused_with_the_reason() -> None:
    async def go() -> None:
        gate = shut(1, pause_s=60.0)
        first = asyncio.create_task(gate.enter("d", ends(0.1), PROBE_S))
        await asyncio.sleep(0.01)
        said, probe = await gate.enter("d", ends(LATE), PROBE_S)
        assert (said.endswith("the last: no disk"), probe, gate.refused) == (True, False, 1)
        assert (await first)[0].endswith("the last: no disk")
        assert (gate.waiting, gate.refused) == (0, 2)
        assert (await Gate(Breaker(1, 1.0, 1.0), 0).enter("d", ends(LATE), PROBE_S)) == ("", False)

    asyncio.run(go())


def test_without_room_nobody_waits() -> None:
    async def go() -> None:
        begun = time.monotonic()
        assert (await shut(0, pause_s=60.0).enter("d", ends(LATE), PROBE_S))[0]
        assert time.monotonic() - begun < 1.0

    asyncio.run(go())


def test_at_the_end_of_the_service_all_leave_without_a_verdict() -> None:
    async def go() -> None:
        gate = shut(8, pause_s=60.0)
        waiting = [asyncio.create_task(gate.enter("d", ends(LATE), PROBE_S)) for _ in range(3)]
        await asyncio.sleep(0.01)
        gate.leave()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [HandedBackError] * 3
        with pytest.raises(HandedBackError, match="no disk"):
            await gate.enter("d", ends(LATE), PROBE_S)
        assert await gate.enter("e", ends(LATE), PROBE_S) == ("", False)

    asyncio.run(go())


def test_who_is_cancelled_leaves_its_place() -> None:
    async def go() -> None:
        gate = shut(1, pause_s=60.0)
        first = asyncio.create_task(gate.enter("d", ends(LATE), PROBE_S))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert gate.waiting == 0

    asyncio.run(go())
