"""Who works beside whom in a pool. Invariant: an answer judged alone has no other beside it, and nobody waits for ever.

The kernel ends some process when memory runs out, not always the one that took it. So a worker that was killed says nothing
yet about its answer: that is judged again while no other is, and what is killed then was killed for its own doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Company:
    """Workers at their answers: many at a time, or one alone. Who wants to be alone goes before who comes later."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._working = 0
        self._alone = 0
        """Those that are alone, or wait to be."""

    @asynccontextmanager
    async def among(self) -> AsyncIterator[None]:
        """Work beside others."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone)
            self._working += 1
        try:
            yield
        finally:
            await self._left()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Work while nobody else does; waits for those who are at it, whose time is bounded."""
        self._alone += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._working)
                self._working += 1
            try:
                yield
            finally:
                await self._left()
        finally:
            self._alone -= 1
            async with self._changed:
                self._changed.notify_all()

    async def _left(self) -> None:
        self._working -= 1
        async with self._changed:
            self._changed.notify_all()
