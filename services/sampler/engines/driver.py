"""An engine in its own thread, seen from the event loop. Invariant: the loop never waits for it, and every stream ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.sampler.engines.port import Check, Engine, EngineError, Request, Segment

IDLE_S = 1.0
"""Longest wait of the idle thread between two looks at its inbox."""
JOIN_S = 5.0


class EngineStoppedError(EngineError):
    """The engine thread has ended; the process must be started anew."""


@dataclass(slots=True)
class DriverStats:
    """Counters since the start; read from any thread."""

    tokens: int = 0
    steps: int = 0
    busy_s: float = 0.0
    loads: int = 0
    load_s: float = 0.0
    """Seconds of the latest load, its check included."""


_Items = list[Segment] | EngineError | None
"""What a stream gets: segments, the reason why there are no more, or the end."""


class Driver:
    """Owns the engine thread."""

    def __init__(self, build: Callable[[], Engine]) -> None:
        """`build` makes the engine; it runs in the engine thread, since engines bind to the thread that makes them."""
        self.stats = DriverStats()
        self.failure: EngineError | None = None
        self._build = build
        self._engine: Engine | None = None
        self._inbox: deque[Callable[[Engine], None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._streams: dict[str, asyncio.Queue[_Items]] = {}
        self._aborted: set[str] = set()
        """Streams that have been aborted and not yet ended."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._busy_since: float | None = None
        self.stopped = asyncio.Event()
        """Set when the thread has ended; `failure` says why if it was not asked to."""

    async def start(self) -> None:
        """Build the engine.

        Raises:
            EngineError: it cannot be built.
        """
        self._thread.start()
        await self._call(lambda _: None)

    async def load(self, version: int, folder: Path, check: Check | None = None) -> float:
        """`Engine.load` between two steps; returns its seconds.

        Raises:
            VersionRefusedError: the previous version serves on.
            EngineStoppedError: the thread has ended.
        """

        def act(engine: Engine) -> None:
            began = time.monotonic()
            try:
                engine.load(version, folder, check)
            finally:
                self.stats.loads += 1
                self.stats.load_s = time.monotonic() - began

        await self._call(act)
        return self.stats.load_s

    async def generate(self, request: Request) -> AsyncGenerator[list[Segment], None]:
        """Segments of a group as they come, a list a step; ends when all its samples have finished, or it was aborted.

        Raises:
            PromptTooLongError: at the start.
            EngineError: the engine failed, or does not take the request.
        """
        if request.id in self._streams:
            raise EngineError(f"request {request.id} is running already")
        queue: asyncio.Queue[_Items] = asyncio.Queue()
        self._streams[request.id] = queue
        left = request.n
        try:
            await self._call(lambda engine: engine.submit(request))
            while left:
                item = await queue.get()
                if item is None:
                    return
                if isinstance(item, EngineError):
                    raise item
                left -= sum(segment.finish is not None for segment in item)
                yield item
        finally:
            del self._streams[request.id]
            told = request.id in self._aborted
            self._aborted.discard(request.id)
            if left and not told and not self.stopped.is_set():
                self._post(lambda engine: engine.abort(request.id))

    def abort(self, request_id: str) -> None:
        """End a stream early; what it has yielded stands. The engine is told at once, whatever the reader waits for."""
        queue = self._streams.get(request_id)
        if queue is not None:
            queue.put_nowait(None)
            if request_id not in self._aborted and not self.stopped.is_set():
                self._aborted.add(request_id)
                self._post(lambda engine: engine.abort(request_id))

    def version(self) -> int:
        """Policy version in the engine."""
        return -1 if self._engine is None else self._engine.version()

    def stalled_s(self) -> float:
        """Seconds since the engine last came back from a step or a load that is still to end; 0 while it has nothing to do."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def running(self) -> int:
        """Samples not finished."""
        return 0 if self._engine is None else self._engine.running()

    def prefix_tokens(self) -> int:
        """Prompt tokens that were not computed again, since a sibling or an earlier group had them."""
        return 0 if self._engine is None else self._engine.prefix_tokens

    def tokens(self) -> int:
        """Tokens that the engine can hold at a time; 0 before there is one."""
        return 0 if self._engine is None else self._engine.tokens

    async def close(self) -> None:
        """End the thread, within a deadline."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, JOIN_S)

    async def _call(self, act: Callable[[Engine], None]) -> None:
        future: asyncio.Future[Any] = self._loop.create_future()

        def run(engine: Engine) -> None:
            try:
                act(engine)
            except EngineError as error:
                self._to_loop(_settle, future, error)
            else:
                self._to_loop(_settle, future, None)

        self._post(run)
        stopped: asyncio.Future[Any] = asyncio.ensure_future(self.stopped.wait())
        try:
            await asyncio.wait([future, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if not future.done():
            raise self.failure or EngineStoppedError("the engine has been closed")
        future.result()

    def _post(self, act: Callable[[Engine], None]) -> None:
        with self._wake:
            self._inbox.append(act)
            self._wake.notify()

    def _to_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _run(self) -> None:
        try:
            engine = self._engine = self._build()
            while self._turn(engine):
                pass
            engine.close()
        except EngineError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 (a thread must not die silently: the loop is told, and ends the process)
            self.failure = EngineStoppedError(f"the engine failed: {type(error).__name__}: {error}")
            self.failure.__cause__ = error
        finally:
            self._to_loop(self._ended)

    def _turn(self, engine: Engine) -> bool:
        with self._wake:
            while not (self._inbox or self._closing or engine.running()):
                self._wake.wait(IDLE_S)
            if self._closing:
                return False
            acts = list(self._inbox)
            self._inbox.clear()
        began = self._busy_since = time.monotonic()
        for act in acts:
            act(engine)
        if engine.running():
            segments = engine.step()
            self.stats.steps += 1
            self.stats.tokens += sum(len(segment.token_ids) for segment in segments)
            if segments:
                self._to_loop(self._deliver, segments)
        self.stats.busy_s += time.monotonic() - began
        self._busy_since = None
        return True

    def _deliver(self, segments: list[Segment]) -> None:
        by_request: dict[str, list[Segment]] = {}
        for segment in segments:
            by_request.setdefault(segment.request_id, []).append(segment)
        for request_id, items in by_request.items():
            queue = self._streams.get(request_id)
            if queue is not None:
                queue.put_nowait(items)

    def _ended(self) -> None:
        reason = self.failure or EngineStoppedError("the engine has been closed")
        for queue in self._streams.values():
            queue.put_nowait(reason)
        self.stopped.set()


def _settle(future: asyncio.Future[Any], error: EngineError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
