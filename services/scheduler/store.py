"""The projection in Redis. Invariant: entries, offsets and position are written together, by the newest incarnation only.

One script call does the write, so it is atomic and needs no WATCH: it refuses an older epoch, and refuses changes that do
not follow on what is stored (Redis was flushed, failed over or restored), whereupon the whole state is written anew: beside
the old one in portions, then put in its place in one step. Redis failing never stops the scheduler: the log is the truth,
and the projection is completed when Redis is back. Every call has a deadline, the reading of everything another. Fields go
over the wire and come back as one string with their lengths: at a million fields the client's own protocol would be most of
the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from services.runtime import faults
from services.runtime.errors import Unavailable
from services.scheduler.journal import Fenced
from services.scheduler.refusals import refusal
from services.scheduler.settings import REDIS_LOAD_S, REDIS_TIMEOUT_S, redis_key

__all__ = ["BOOKKEEPING", "Fenced", "Newer", "Store", "StoreError"]

log = logging.getLogger(__name__)
CHUNK = 4000
"""Fields in one call of a full write or a full read."""
TRIES = 5
BOOKKEEPING = frozenset({"epoch", "mark", "journal", "shards"})
"""Fields beside the state: who wrote last, up to which batch, where the journal goes on, how the domains are divided."""

_PARTS = """
local function parts(sizes, joined)
  local found, at = {}, 1
  for size in string.gmatch(sizes, '%d+') do
    found[#found + 1] = string.sub(joined, at, at + size - 1)
    at = at + size
  end
  return found
end
local function put(key, sizes, joined, gone_sizes, gone)
  local sets = parts(sizes, joined)
  for i = 1, #sets, 2 do redis.call('HSET', key, sets[i], sets[i + 1]) end
  for _, name in ipairs(parts(gone_sizes, gone)) do redis.call('HDEL', key, name) end
end
"""
_APPLY = (
    _PARTS
    + """
local epoch = redis.call('HGET', KEYS[1], 'epoch')
local known = tonumber(epoch or '')
if known and known > tonumber(ARGV[1]) and epoch ~= ARGV[10] then return 'fenced:' .. epoch end
if ARGV[2] == 'all' then
  if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) else redis.call('DEL', KEYS[1]) end
elseif redis.call('HGET', KEYS[1], 'mark') ~= ARGV[2] then
  return 'stale'
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'mark', ARGV[3], 'journal', ARGV[4], 'shards', ARGV[5])
put(KEYS[1], ARGV[6], ARGV[7], ARGV[8], ARGV[9])
return 'ok'
"""
)
_BUILD = (
    _PARTS
    + """
put(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
return 'ok'
"""
)
_READ = """
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local sizes = {}
for i, part in ipairs(found[2]) do sizes[i] = #part end
return {found[1], table.concat(sizes, ','), table.concat(found[2]), redis.call('HGET', KEYS[1], 'mark') or ''}
"""


class StoreError(Unavailable):
    """Redis did not take or give the state."""


class Newer(Fenced):
    """Redis holds what a scheduler of a newer epoch wrote: it has taken over, or Redis is not of this log."""

    def __init__(self, message: str, epoch: int) -> None:
        super().__init__(message)
        self.epoch = epoch


class Store:
    """The projection of one shard of one installation."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        shard: int = 0,
        shards: int = 1,
        timeout_s: float = REDIS_TIMEOUT_S,
        load_s: float = REDIS_LOAD_S,
    ) -> None:
        """`url`: redis://host:port/db. `timeout_s`: of each call; `load_s`: of reading everything."""
        try:
            self._client: Any = redis.asyncio.Redis.from_url(
                url,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                # Once more over a new connection, for the old one may be from before a restart; all else is tried later.
                retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            )
        except ValueError as error:
            raise Unavailable(f"TEMPER_REDIS {_shown(url)!r} is no Redis address: {error}") from error
        self._where = _shown(url)
        self._timeout_s, self._load_s = timeout_s, load_s
        self._key = redis_key(prefix, shard)
        self._building = self._key + ":building"
        self._shards = shards
        self.mark = ""
        """What was stored last; empty when the whole state must be written."""
        self.foreign = 0
        """An epoch that is known to be of another log: what has it may be overwritten. 0: none is known."""
        self._apply = self._client.register_script(_APPLY)
        self._build = self._client.register_script(_BUILD)
        self._read = self._client.register_script(_READ)

    async def load(self, *, torn: bool = False) -> dict[str, bytes]:
        """All stored fields, empty if there are none.

        `torn`: take them as they come, even if a scheduler writes meanwhile.

        Raises:
            Unavailable: Redis does not answer, or a scheduler writes faster than this reads.
        """
        try:
            async with asyncio.timeout(self._load_s):
                for _ in range(TRIES):
                    marks, fields = await self._scan()
                    if torn or len(marks) <= 1:
                        return fields
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis cannot be read: {self._said(error)}") from error
        raise Unavailable(
            f"the stored state changed {TRIES} times while it was read; ask again when the scheduler has less to do"
        )

    async def _scan(self) -> tuple[set[bytes], dict[str, bytes]]:
        fields: dict[str, bytes] = {}
        marks: set[bytes] = set()
        reading = asyncio.ensure_future(self._portion(b"0"))
        try:
            while True:
                cursor, sizes, joined, mark = await reading
                if cursor != b"0":  # the server works on the next portion while this one is taken apart
                    reading = asyncio.ensure_future(self._portion(cursor))
                    await asyncio.sleep(0)
                marks.add(mark)
                fields.update(_split(sizes, joined))
                if cursor == b"0":
                    return marks, fields
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            if not reading.cancelled():
                reading.exception()  # told by what ended this, or of no interest any more

    async def _portion(self, cursor: bytes) -> list[bytes]:
        async with asyncio.timeout(self._timeout_s):
            return await cast("Awaitable[list[bytes]]", self._read(keys=[self._key], args=[cursor, CHUNK]))

    async def apply(
        self, changes: Mapping[str, bytes | None], *, epoch: int, seq: int, journal: int
    ) -> Literal["ok", "stale"]:
        """Write changes that follow on what this store wrote last; `stale` if Redis holds something else.

        `journal` is an offset at or before the next journal entry.

        Raises:
            Fenced: a scheduler of a newer epoch has written.
            StoreError: Redis does not take it.
        """
        if not self.mark:
            return "stale"
        return await self._write(changes, self.mark, epoch, seq, journal)

    async def begin(self) -> None:
        """Forget what was built beside.

        Raises:
            StoreError: Redis does not answer.
        """
        self.mark = ""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.delete(self._building)
        except (RedisError, OSError) as error:
            raise self._refused(error) from error

    async def build(self, changes: Mapping[str, bytes | None]) -> None:
        """Write a portion of the whole state beside the stored one; the last value of a field counts.

        Raises:
            StoreError: Redis does not take it.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._build(keys=[self._building], args=[*_pack(changes)])
        except (RedisError, OSError) as error:
            raise self._refused(error) from error

    async def adopt(self, changes: Mapping[str, bytes | None], *, epoch: int, seq: int, journal: int) -> None:
        """Put what was built, with these last changes, in the place of the stored state.

        Raises:
            Fenced: a scheduler of a newer epoch has written.
            StoreError: Redis does not take it.
        """
        await self._write(changes, "all", epoch, seq, journal)

    async def close(self) -> None:
        """Disconnect, within the deadline of a call."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._client.aclose()
        except (RedisError, OSError) as error:
            log.warning("the connection to Redis did not close cleanly: %s", self._said(error))

    async def _write(
        self, changes: Mapping[str, bytes | None], before: str, epoch: int, seq: int, journal: int
    ) -> Literal["ok", "stale"]:
        mark = f"{epoch}:{seq}"
        self.mark = ""  # until it is known that this was taken
        faults.at("scheduler:before-redis")
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await cast(
                    "Awaitable[bytes]",
                    self._apply(
                        keys=[self._key, self._building],
                        args=[epoch, before, mark, journal, self._shards, *_pack(changes), self.foreign],
                    ),
                )
        except (RedisError, OSError) as error:
            raise self._refused(error) from error
        faults.at("scheduler:after-redis")
        if answer.startswith(b"fenced:"):
            there = int(answer.partition(b":")[2])
            raise Newer(
                f"{self._where}: {self._key} holds the state of a newer scheduler (epoch {there}, this one is {epoch})",
                there,
            )
        if answer == b"stale":
            return "stale"
        self.mark = mark
        return "ok"

    def _said(self, error: Exception) -> str:
        # One call's deadline, or that of reading everything: an own timeout has no words.
        return refusal(error, self._where, self._timeout_s)

    def _refused(self, error: Exception) -> StoreError:
        return StoreError(self._said(error))


def _pack(changes: Mapping[str, bytes | None]) -> tuple[bytes, bytes, bytes, bytes]:
    sets: list[bytes] = []
    gone: list[bytes] = []
    for name, value in changes.items():
        if value is None:
            gone.append(name.encode())
        else:
            sets += (name.encode(), value)
    return _sizes(sets), b"".join(sets), _sizes(gone), b"".join(gone)


def _sizes(parts: Sequence[bytes]) -> bytes:
    return ",".join([str(len(part)) for part in parts]).encode()


def _split(sizes: bytes, joined: bytes) -> dict[str, bytes]:
    if not sizes:
        return {}
    bounds = [0]
    total = 0
    for size in sizes.split(b","):
        total += int(size)
        bounds.append(total)
    parts: Sequence[bytes] = [joined[start:end] for start, end in pairwise(bounds)]
    return {name.decode(): value for name, value in zip(parts[::2], parts[1::2], strict=True)}


def _shown(url: str) -> str:
    """The address without its password."""
    scheme, found, rest = url.partition("://")
    return scheme + found + rest.rpartition("@")[2]
