"""When Redis is written. Invariant: never on the way of an assignment; what is stored is a state whose effects are out.

The scheduler notes after each batch what changed and offers the state when its effects are confirmed. Unless a write is under
way, the changes since the last one are encoded then and written in the background, so that a busy scheduler writes a task
once that changed ten times. When Redis does not hold what it should, the whole state is written in portions between turns:
every portion as the state is then, and at the end all that changed since the beginning, which makes it the state of the end.

Who may write is decided by the journal, not by Redis: a newer epoch found there is either that of a successor, of which the
journal tells with the next entry, or is left from another log. It is the latter when two more entries of ours were accepted
by the journal since, for the second of them was begun after that epoch was seen; what is there is then overwritten.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator
from itertools import batched, chain
from typing import Any

from services.scheduler.settings import REDIS_PAUSE_S, SAVE_S
from services.scheduler.snapshot import encode_fields, encode_meta, names_of_keys
from services.scheduler.state import State
from services.scheduler.store import CHUNK, Newer, Store, StoreError

log = logging.getLogger(__name__)
STOP_S = 10.0
"""Longest wait for a write that was cancelled."""
AT_ONCE = 20_000
"""Changed fields that are written in one call at most."""


class Projection:
    """Keeps the projection of one state behind it."""

    def __init__(self, state: State, store: Store, *, pause_s: float = REDIS_PAUSE_S) -> None:
        """`pause_s`: rest after a failure."""
        self._state, self._store = state, store
        self._pause_s = pause_s
        self._changed: set[str] = set()
        """Fields that Redis (or what is built beside) does not have as they are."""
        self.watchers: list[set[str]] = []
        """Sets of others that want to know of changed fields."""
        self._stored = (0, 0)
        self._writing: asyncio.Task[None] | None = None
        self._built = False
        self._not_before = 0.0
        self._failing = False
        self._newer = 0
        """Epoch in Redis that is newer than ours; 0 for none."""
        self._proof = 0
        """Position of the journal at which that epoch is known to be of another log; 0 while it is not set."""
        self.stats: dict[str, float] = {"redis_writes": 0.0, "redis_full_writes": 0.0, "redis_errors": 0.0}
        self.note()

    @property
    def dirty(self) -> bool:
        """Whether Redis is behind."""
        meta = self._state.meta
        return self._stored != (meta.epoch, meta.seq)

    def note(self) -> None:
        """Take over what a batch changed."""
        changed = self._state.changed
        self._changed |= changed
        for watcher in self.watchers:
            watcher.update(changed)
        changed.clear()

    def offer(self, journal: int) -> None:
        """The effects of everything in the state are out; write it if it is time. Never waits."""
        writing = self._writing
        if writing is not None:
            if not writing.done():
                return
            self._writing = None
            writing.result()
        if time.monotonic() < self._not_before or not self.dirty or not self._cleared(journal):
            return
        if not self._store.mark and not self._built:
            self._changed.clear()
            self._writing = asyncio.create_task(self._guarded(self._rebuild()), name="projection")
            return
        if len(self._changed) > AT_ONCE:
            names, self._changed = self._changed, set()
            if self._built:
                self._writing = asyncio.create_task(self._guarded(self._portions(names)), name="projection")
                return
            self._changed = names
        self._writing = asyncio.create_task(self._guarded(self._commit(journal)), name="projection")

    async def finish(self, journal: int) -> None:
        """Bring Redis up to the state, as far as it takes it."""
        while True:
            writing, self._writing = self._writing, None
            if writing is not None:
                await writing
            if not self.dirty or self._failing:
                return
            self._not_before = 0.0
            self.offer(journal)
            if self._writing is None:
                return

    async def stop(self) -> None:
        """End a write that is under way."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.cancel()
            await asyncio.wait([writing], timeout=STOP_S)

    def _cleared(self, journal: int) -> bool:
        """Whether nothing in Redis speaks against writing it, given where the journal goes on."""
        if not self._newer:
            return True
        if not self._proof:
            self._proof = journal + 2
        if journal < self._proof:
            return False
        log.warning(
            "what Redis holds (epoch %d) is of another log: nobody else has written to this one's journal; it is overwritten",
            self._newer,
        )
        self._store.foreign, self._newer, self._proof = self._newer, 0, 0
        return True

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Newer as error:
            self._built = False
            self._newer, self._proof = error.epoch, 0
            self._failing = True
            log.warning(
                "%s; the journal decides which of them goes on, until then Redis is left as it is", error
            )
        except StoreError as error:
            self._built = False
            self._store.mark = ""
            self._not_before = time.monotonic() + self._pause_s
            self.stats["redis_errors"] += 1
            if not self._failing:
                log.warning("Redis does not take the state (%s); going on from the log, trying again", error)
            self._failing = True

    def _commit(self, journal: int) -> Coroutine[Any, Any, None]:
        """What is to be written is taken now, before anything else happens; the rest is done in the background."""
        names, self._changed = self._changed, set()
        meta = self._state.meta
        epoch, seq = meta.epoch, meta.seq
        changes = encode_fields(self._state, names)
        changes["meta"] = encode_meta(self._state)
        whole, self._built = self._built, False

        async def write() -> None:
            if whole:
                await self._store.adopt(changes, epoch=epoch, seq=seq, journal=journal)
                self.stats["redis_full_writes"] += 1
            elif await self._store.apply(changes, epoch=epoch, seq=seq, journal=journal) == "stale":
                return  # the next offer finds no mark and writes everything
            self._stored = (epoch, seq)
            if self._failing:
                log.info("Redis takes the state again")
            self._failing = False
            self._not_before = time.monotonic() + SAVE_S
            self.stats["redis_writes"] += 1

        return write()

    async def _rebuild(self) -> None:
        await self._store.begin()
        state = self._state
        ids = chain(list(state.live), list(state.ended))
        names: Iterator[str] = chain(
            ("task:" + name for name in ids),
            ["domain:" + name for name in state.domains],
            ["worker:" + name for name in state.workers],
            names_of_keys(state),
        )
        await self._portions(names)

    async def _portions(self, names: Iterator[str] | set[str]) -> None:
        for portion in batched(names, CHUNK):
            await self._store.build(encode_fields(self._state, portion))
        self._built = True
