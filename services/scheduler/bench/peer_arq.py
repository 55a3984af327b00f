"""The task as arq has it; its workers are started with `arq` and `Settings` of this module."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings

from services.scheduler.bench.board import Board

TOGETHER = 64
"""Submissions under way at a time."""
_boards: list[Board] = []
_runner = asyncio.Runner()
_pools: list[ArqRedis] = []


async def noop(_: dict[str, Any], number: int) -> None:
    """Do nothing, and say when."""
    if not _boards:
        _boards.append(Board.of_environment())
    _boards[0].begin(number)


class Settings:
    """What arq's worker reads."""

    functions = (noop,)
    redis_settings = RedisSettings.from_dsn(os.environ["TEMPER_BENCH_REDIS"])
    max_jobs = int(os.environ["TEMPER_BENCH_EACH"])
    keep_result = 0
    poll_delay = 0.01
    """Its default of half a second would be all that is measured when idle."""
    log_results = False


def submit(first: int, count: int) -> None:
    """Queue tasks `first` to `first + count - 1`."""
    _runner.run(_submit(first, count))


async def _submit(first: int, count: int) -> None:
    if not _pools:
        _pools.append(await create_pool(Settings.redis_settings))
    for start in range(first, first + count, TOGETHER):
        numbers = range(start, min(start + TOGETHER, first + count))
        await asyncio.gather(*(_pools[0].enqueue_job("noop", number) for number in numbers))
