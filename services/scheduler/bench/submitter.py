"""A process that submits to one system, told over pipes what and when. Invariant: it submits in order, each task once."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from schemas.ids import event_id
from schemas.tasks import Task, TaskSubmitted
from services.runtime.producer import Outgoing, Producer
from services.scheduler.bench.board import Board
from services.scheduler.bench.names import OURS, domain_of, task_id

AT_A_TIME = 500
Submit = Callable[[int, int], None]


class Request(msgspec.Struct, array_like=True):
    """Submit `count` tasks from number `first` on, `pause_s` apart (0: as fast as it goes)."""

    first: int
    count: int
    pause_s: float = 0.0


def outgoing(number: int) -> Outgoing:
    """A task as an outside producer submits it."""
    domain = domain_of(number)
    name = task_id(number)
    task = Task(id=name, domain=domain, prompt=f"Say {number}.", spec={"number": number}, group_size=1)
    return Outgoing(
        topic="tasks", event=TaskSubmitted(task=task), key=domain, id=event_id("TaskSubmitted", name)
    )


def ours(runner: asyncio.Runner, ended: ExitStack) -> Submit:
    """Submission to the log, through a producer that stays connected until `ended` closes."""
    producer = Producer(os.environ["TEMPER_KAFKA"], os.environ["TEMPER_PREFIX"], "bench")
    runner.run(producer.start())
    ended.callback(lambda: runner.run(producer.stop()))

    async def emit(first: int, count: int) -> None:
        for start in range(first, first + count, AT_A_TIME):
            numbers = range(start, min(start + AT_A_TIME, first + count))
            await producer.emit(*(outgoing(number) for number in numbers))

    return lambda first, count: runner.run(emit(first, count))


def theirs(system: str) -> Submit:
    """Submission to a peer."""
    found: Submit = importlib.import_module(f"services.scheduler.bench.peer_{system}").submit
    return found


def serve(submit: Submit, board: Board, request: Request) -> None:
    """Do what one request says."""
    if not request.pause_s:
        board.submit(request.first)
        submit(request.first, request.count)
        return
    due = time.monotonic()
    for number in range(request.first, request.first + request.count):
        board.submit(number)
        submit(number, 1)
        due += request.pause_s
        time.sleep(max(0.0, due - time.monotonic()))  # the interval is what is asked for


def main(argv: list[str]) -> int:
    """`SYSTEM`; then requests, one JSON document a line, each answered by a line when all is submitted."""
    system = argv[0]
    board = Board.of_environment()
    with asyncio.Runner() as runner, ExitStack() as ended:
        submit = ours(runner, ended) if system == OURS else theirs(system)
        _answer()
        for line in sys.stdin.buffer:
            serve(submit, board, msgspec.json.decode(line, type=Request))
            _answer()
    return 0


def _answer() -> None:
    sys.stdout.buffer.write(b"done\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
