"""The engine thread, with an engine that counts: the event loop's side of the contract."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from schemas.tasks import Sampling
from services.sampler.engines.driver import Driver, EngineStoppedError
from services.sampler.engines.port import Engine, EngineError, PromptTooLongError, Request, Scored, Segment
from services.sampler.engines.weights import Weights


class Counting(Engine):
    """Sample i of a request emits its budget of tokens 0, 1, 2, ..."""

    name = "counting"
    max_model_len = 8

    def __init__(self, *, fail_at: int = -1) -> None:
        super().__init__()
        self._version = 0
        self._live: dict[tuple[str, int], list[int]] = {}
        self._steps, self._fail_at = 0, fail_at
        self.thread = threading.get_ident()
        self.gate = threading.Event()
        self.gate.set()
        self.aborted: list[str] = []

    def submit(self, request: Request) -> None:
        budget = self._admit(request)
        self._live |= {(request.id, index): [0, budget] for index in range(request.n)}

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)
        self._live = {key: value for key, value in self._live.items() if key[0] != request_id}

    def step(self) -> list[Segment]:
        assert self.gate.wait(10.0)
        self._steps += 1
        if self._steps == self._fail_at:
            raise RuntimeError("out of memory")
        segments = []
        for (name, index), state in list(self._live.items()):
            state[0] += 1
            finish = "length" if state[0] == state[1] else None
            segments.append(Segment(name, index, [state[0]], [-1.0], self._version, finish))  # type: ignore[arg-type]
            if finish:
                del self._live[name, index]
        return segments

    def running(self) -> int:
        return len(self._live)

    def score(self, sequences: list[Scored]) -> list[list[float]]:
        return [[0.0] * len(answer) for _, answer in sequences]

    def close(self) -> None:
        self._live.clear()

    def _install(self, weights: Weights) -> None: ...

    def _suspend(self) -> None: ...

    def _resume(self) -> None: ...


def request(name: str, n: int = 2, tokens: int = 3, prompt: int = 2) -> Request:
    return Request(name, list(range(prompt)), n, Sampling(max_tokens=tokens))


def with_driver(
    build: Callable[[], Engine], use: Callable[[Driver], Coroutine[Any, Any, None]], *, start: bool = True
) -> None:
    async def main() -> None:
        driver = Driver(build)
        try:
            if start:
                await driver.start()
            async with asyncio.timeout(20):
                await use(driver)
        finally:
            await driver.close()
        assert not driver._thread.is_alive()

    asyncio.run(main())


async def collect(driver: Driver, wanted: Request) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    async with aclosing(driver.generate(wanted)) as stream:
        async for segments in stream:
            for segment in segments:
                tokens.setdefault(segment.index, []).extend(segment.token_ids)
    return tokens


def test_groups_run_together_in_another_thread_and_get_their_own_tokens() -> None:
    engine: list[Counting] = []

    def build() -> Engine:
        engine.append(Counting())
        return engine[0]

    async def use(driver: Driver) -> None:
        a, b = await asyncio.gather(
            collect(driver, request("a")), collect(driver, request("b", n=1, tokens=5))
        )
        assert a == {0: [1, 2, 3], 1: [1, 2, 3]}
        assert b == {0: [1, 2, 3, 4, 5]}
        assert engine[0].thread != threading.get_ident()
        assert driver.stats.tokens == 11

    with_driver(build, use)


def test_a_step_that_takes_long_does_not_block_the_loop_and_an_aborted_stream_ends() -> None:
    engine = Counting()

    async def use(driver: Driver) -> None:
        running = asyncio.ensure_future(collect(driver, request("a", tokens=6)))
        await asyncio.sleep(0)  # let it be submitted
        engine.gate.clear()
        driver.abort("a")
        await asyncio.wait_for(running, 5.0)
        engine.gate.set()
        assert await collect(driver, request("b", n=1)) == {0: [1, 2, 3]}
        assert engine.aborted == ["a"]

    with_driver(lambda: engine, use)


def test_a_prompt_without_room_is_refused_and_others_go_on() -> None:
    async def use(driver: Driver) -> None:
        with pytest.raises(PromptTooLongError, match="8 tokens"):
            await collect(driver, request("a", prompt=8))
        with pytest.raises(EngineError, match="no tokens"):
            await collect(driver, request("b", prompt=0))
        assert await collect(driver, request("c", n=1, prompt=7)) == {0: [1]}

    with_driver(Counting, use)


def test_an_engine_that_fails_ends_every_stream_and_says_why() -> None:
    async def use(driver: Driver) -> None:
        with pytest.raises(EngineStoppedError, match="out of memory"):
            await collect(driver, request("a", tokens=6))
        await asyncio.wait_for(driver.stopped.wait(), 5.0)
        with pytest.raises(EngineStoppedError, match="out of memory"):
            await driver.load(1, Path("nowhere"))

    with_driver(lambda: Counting(fail_at=2), use)


def test_an_engine_that_cannot_be_built_is_an_error_of_start() -> None:
    def build() -> Engine:
        raise EngineError("no such model")

    async def use(driver: Driver) -> None:
        with pytest.raises(EngineError, match="no such model"):
            await driver.start()

    with_driver(build, use, start=False)


def test_an_engine_that_does_not_come_back_is_seen_from_outside() -> None:
    engines: list[Counting] = []

    def build() -> Engine:
        engines.append(Counting())
        return engines[0]

    async def use(driver: Driver) -> None:
        assert driver.stalled_s() == 0.0
        engines[0].gate.clear()
        asked = asyncio.ensure_future(collect(driver, request("a", tokens=2)))
        async with asyncio.timeout(5.0):
            while driver.stalled_s() < 0.1:  # noqa: ASYNC110 (a figure has no event)
                await asyncio.sleep(0.01)
        engines[0].gate.set()
        assert await asked
        async with asyncio.timeout(5.0):
            while driver.stalled_s() != 0.0:  # noqa: ASYNC110 (as above)
                await asyncio.sleep(0.01)

    with_driver(build, use)
