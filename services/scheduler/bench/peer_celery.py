"""The task as Celery has it; its workers are started with `celery -A` and this module."""

from __future__ import annotations

import os

from celery import Celery

from services.scheduler.bench.board import Board

app = Celery("bench", broker=os.environ["TEMPER_BENCH_REDIS"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=int(os.environ["TEMPER_BENCH_EACH"]),
    broker_connection_retry_on_startup=True,
)
_boards: list[Board] = []


@app.task(name="noop")  # type: ignore[untyped-decorator]
def noop(number: int) -> None:
    """Do nothing, and say when."""
    if not _boards:
        _boards.append(Board.of_environment())
    _boards[0].begin(number)


def submit(first: int, count: int) -> None:
    """Queue tasks `first` to `first + count - 1` over one connection."""
    with app.producer_or_acquire() as producer:
        for number in range(first, first + count):
            noop.apply_async((number,), producer=producer)
