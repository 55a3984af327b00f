"""The projection in Redis. Invariant: entries, offsets and position are written together, by the newest incarnation only.

One script call does the write, so it is atomic and needs no WATCH: it refuses an older epoch, and refuses changes that do
not follow on what is stored (Redis was flushed, failed over or restored), whereupon the whole state is written anew. Redis
failing never stops the scheduler: the log is the truth, and the projection is completed when Redis is back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import redis.asyncio
from redis.exceptions import RedisError

from services.runtime.errors import Unavailable
from services.scheduler.settings import REDIS_PAUSE_S, REDIS_TIMEOUT_S, redis_key

log = logging.getLogger(__name__)
CHUNK = 4000
"""Fields in one command of a full write."""
BOOKKEEPING = frozenset({"epoch", "mark", "journal"})
"""Fields beside the state: who wrote last, up to which batch, and where the journal goes on."""

_APPLY = """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return 'fenced' end
if ARGV[2] == 'all' then
  redis.call('RENAME', KEYS[2], KEYS[1])
else
  if redis.call('HGET', KEYS[1], 'mark') ~= ARGV[2] then return 'stale' end
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'mark', ARGV[3], 'journal', ARGV[4])
local sets = tonumber(ARGV[5])
for i = 6, 5 + 2 * sets, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = 6 + 2 * sets, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
return 'ok'
"""


class Fenced(Unavailable):
    """A newer scheduler has taken over; this one must end."""


class Store:
    """The projection of one installation."""

    def __init__(self, url: str, prefix: str, *, pause_s: float = REDIS_PAUSE_S) -> None:
        """`url`: redis://host:port/db; `pause_s`: rest after a failure."""
        try:
            self._client: Any = redis.asyncio.Redis.from_url(
                url, socket_timeout=REDIS_TIMEOUT_S, socket_connect_timeout=REDIS_TIMEOUT_S
            )
        except ValueError as error:
            raise Unavailable(f"TEMPER_REDIS {url!r} is no Redis address: {error}") from error
        self._key = redis_key(prefix)
        self._mark = ""
        """What was stored last; empty when the whole state must be written."""
        self._pause_s = pause_s
        self._rest_until = 0.0
        self._apply = self._client.register_script(_APPLY)
        self.stats: dict[str, float] = {"redis_writes": 0.0, "redis_full_writes": 0.0, "redis_errors": 0.0}

    async def load(self) -> dict[str, bytes]:
        """All stored fields, empty if there are none.

        Raises:
            Unavailable: Redis does not answer.
        """
        try:
            raw = await cast("Awaitable[dict[bytes, bytes]]", self._client.hgetall(self._key))
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis cannot be read: {error}; is TEMPER_REDIS right?") from error
        return {name.decode(): value for name, value in raw.items()}

    async def save(
        self,
        changes: Mapping[str, bytes | None],
        whole: Callable[[], Mapping[str, bytes]],
        *,
        epoch: int,
        seq: int,
        journal: int,
    ) -> bool:
        """Store `changes`, or `whole()` where they do not fit on what is there; whether Redis took it.

        `journal` is an offset at or before the next journal entry.

        Raises:
            Fenced: a scheduler of a newer epoch has written.
        """
        if time.monotonic() < self._rest_until:
            return False
        mark = f"{epoch}:{seq}"
        try:
            answer = b"stale"
            if self._mark:
                answer = await self._write(changes, self._mark, mark, epoch, journal)
            if answer == b"stale":
                await self._build(whole())
                answer = await self._write({}, "all", mark, epoch, journal)
                self.stats["redis_full_writes"] += 1
        except (RedisError, OSError) as error:
            self._mark = ""
            self._rest_until = time.monotonic() + self._pause_s
            self.stats["redis_errors"] += 1
            log.warning("Redis does not take the state (%s); going on from the log, trying again", error)
            return False
        if answer == b"fenced":
            raise Fenced(f"a newer scheduler than epoch {epoch} runs on this log; this one ends")
        self._mark = mark
        self.stats["redis_writes"] += 1
        return True

    async def close(self) -> None:
        """Disconnect."""
        await self._client.aclose()

    async def _write(
        self, changes: Mapping[str, bytes | None], before: str, mark: str, epoch: int, journal: int
    ) -> bytes:
        sets = [item for name, value in changes.items() if value is not None for item in (name, value)]
        gone = [name for name, value in changes.items() if value is None]
        arguments = [epoch, before, mark, journal, len(sets) // 2, *sets, *gone]
        keys = [self._key, self._key + ":building"]
        return cast("bytes", await self._apply(keys=keys, args=arguments))

    async def _build(self, fields: Mapping[str, bytes]) -> None:
        building = self._key + ":building"
        await self._client.delete(building)
        names = list(fields)
        for start in range(0, len(names), CHUNK):
            await self._client.hset(
                building, mapping={name: fields[name] for name in names[start : start + CHUNK]}
            )
