"""The task as Dramatiq has it; its workers are started with `dramatiq` and this module."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from services.scheduler.bench.board import Board

dramatiq.set_broker(RedisBroker(url=os.environ["TEMPER_BENCH_REDIS"]))
_boards: list[Board] = []


@dramatiq.actor  # type: ignore[untyped-decorator]
def noop(number: int) -> None:
    """Do nothing, and say when."""
    if not _boards:
        _boards.append(Board.of_environment())
    _boards[0].begin(number)


def submit(first: int, count: int) -> None:
    """Queue tasks `first` to `first + count - 1`."""
    for number in range(first, first + count):
        noop.send(number)
