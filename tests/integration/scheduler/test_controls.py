"""Drains and quotas by the command line, through the log, with the scheduler's process."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from tests.integration.scheduler.process import Service, World, play, replayed, service, tasks

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["service"]


def test_a_drained_pool_waits_and_quotas_that_cannot_be_are_one_line(
    service: Service, kafka: str, prefix: str
) -> None:
    async def told(world: World, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        async with asyncio.timeout(20.0):
            while True:
                await world.until(lambda: True)
                await world.beat()
                status, found = await asyncio.to_thread(service.ask, "ps")
                if status == 0 and holds(found):
                    return dict(found)

    async def scene(world: World) -> None:
        service.start()
        await world.beat()
        await told(world, lambda found: bool(found["workers"]))
        for words, line in (
            (("drain", "nowhere"), "pools are"),
            (("quota", "echo", "nan"), "no whole number"),
            (("quota", "echo", "-1"), "is negative"),
            (("quota", "echo", "99"), "more than the 4 slots that there are"),
            (("quota", "echo", "2", "--lend", "1"), "has no cohort"),
        ):
            status, said = await asyncio.to_thread(service.ask, *words)
            assert (status, said.count("\n")) == (2, 1), said
            assert line in said
        assert (await asyncio.to_thread(service.ask, "quota", "echo", "2"))[0] == 0
        await told(world, lambda found: found["domains"]["echo"]["room"] == 2)
        assert (await asyncio.to_thread(service.ask, "drain", "standard"))[0] == 0
        await world.submit(*tasks(4))
        await world.until(lambda: len(world.states) == 4)
        status, found = await asyncio.to_thread(service.ask, "explain", "t0")
        assert status == 0
        assert "drained" in found["waits_for"][0]
        assert world.assigned == {}
        assert (await asyncio.to_thread(service.ask, "resume", "standard"))[0] == 0
        await world.until(lambda: len(world.assigned) == 2, work=False)
        await told(world, lambda found: found["figures"]["leases"] == 2)
        for assigned in list(world.assigned.values()):
            await world.answer(assigned)
        await world.until(world.ended(4))

    play(kafka, prefix, lambda _: True, scene)
    assert service.end(signal.SIGTERM) == 0
    assert replayed(service)["terminal"] == 4
