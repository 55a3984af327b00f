"""Snapshots in the blob store. Invariant: a snapshot is announced only when all its parts are stored, and is exact for its mark.

The state is written in portions between turns, each as it is then; at the end, in one go, all that changed since the beginning
and the header: a later part wins over an earlier one, so together they are the state of that last moment. Parts are
content-addressed and compressed, and carry a mark that no other snapshot has, so none is shared; the event that names them
goes to the `snapshots` topic. So a lost Redis costs the tail only, and what lies before the oldest kept snapshot of every
shard may be deleted from the log. Snapshots beyond the newest ones are removed (see `cellar`).
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable
from itertools import batched, chain
from typing import TYPE_CHECKING

import cramjam
import msgspec

from schemas.ids import event_id
from schemas.snapshots import SnapshotStored
from schemas.trajectories import BlobRef
from services.runtime.blobs import BlobError, Blobs
from services.runtime.errors import Unavailable
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.scheduler.cellar import Manifest, manifest_of, store_of, tidy
from services.scheduler.policies import Policies
from services.scheduler.settings import SNAPSHOTS
from services.scheduler.snapshot import FOLD_VERSION, encode_fields, encode_meta, names_of_keys

if TYPE_CHECKING:
    from services.scheduler.projection import Projection
    from services.scheduler.turns import Turns

PART = 20_000
"""Fields in one part."""
SLICE = 1000
"""Fields that are encoded in one go, between two turns."""
MARK = ""
"""Name of the field in every part that makes the part one of its snapshot alone."""
READ_S = 60.0
TRIES = 3
log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(dict[str, bytes | None])


class Durable:
    """Writes snapshots of one shard, one after the other."""

    def __init__(
        self, blobs: Blobs, producer: Producer, policies: Policies, projection: Projection, turns: Turns
    ) -> None:
        self._blobs = store_of(blobs, producer.prefix, policies.shard)
        self._producer, self._policies = producer, policies
        self._projection, self._turns = projection, turns
        self._mark = b""
        """In every part of the snapshot that is being written."""

    async def run(self, every_s: float, kept: int, kafka: str) -> None:
        """Write one every so often, while there is something new, and remove those beyond the newest `kept`.

        A store that fails is tried again the next time.
        """
        seq = self._turns.state.meta.seq
        while True:
            await asyncio.sleep(every_s)
            if self._turns.state.meta.seq == seq:
                continue
            try:
                written = await self.write()
            except Unavailable as error:
                log.warning("no snapshot was written (%s); the log is kept, trying again", error)
                continue
            seq = written.seq
            try:
                gone = await self.tidy(kept, kafka)
            except Unavailable as error:
                log.warning("old snapshots were not removed (%s); trying again after the next one", error)
            else:
                if gone:
                    log.info("shard %d: %d blobs of old snapshots removed", self._policies.shard, gone)

    async def tidy(self, kept: int, kafka: str) -> int:
        """Remove the snapshots of this shard beyond the newest `kept`; returns how many blobs went.

        Raises:
            Unavailable: the broker or the store does not answer.
        """
        mine = [
            event
            for event in await stored(kafka, self._producer.prefix)
            if event.shard == self._policies.shard
        ]
        return await asyncio.to_thread(tidy, self._blobs, mine, max(1, kept))

    async def write(self) -> SnapshotStored:
        """Write a snapshot and announce it.

        Raises:
            Unavailable: the blob store or the broker does not take it.
        """
        started = time.monotonic()
        self._mark = uuid.uuid4().bytes
        changed: set[str] = set()
        self._projection.watchers.append(changed)
        try:
            refs, records, size = await self._walk()
            (epoch, seq, journal, offsets), last = await self._turns.at_rest(
                lambda mark: (mark, self._last(changed))
            )
        finally:
            self._projection.watchers = [other for other in self._projection.watchers if other is not changed]
        refs.append(await self._store(last))
        records += len(last)
        size += refs[-1].size
        manifest = await asyncio.to_thread(self._blobs.put, msgspec.json.encode(Manifest(parts=tuple(refs))))
        event = SnapshotStored(
            shard=self._policies.shard,
            shards=self._policies.shards,
            epoch=epoch,
            seq=seq,
            journal=journal,
            offsets=offsets,
            fold=FOLD_VERSION,
            manifest=manifest,
            records=records,
            size=size,
        )
        name = event_id("SnapshotStored", event.shard, epoch, seq)
        await self._producer.emit(Outgoing(topic=SNAPSHOTS, event=event, key=str(event.shard), id=name))
        log.info(
            "shard %d: snapshot at seq %d stored, %d fields in %d bytes, %.1f s",
            event.shard,
            seq,
            records,
            size,
            time.monotonic() - started,
        )
        return event

    def _last(self, changed: set[str]) -> dict[str, bytes | None]:
        state = self._turns.state
        return encode_fields(state, changed) | {"meta": encode_meta(state)}

    async def _walk(self) -> tuple[list[BlobRef], int, int]:
        state = self._turns.state
        names: Iterable[str] = chain(
            ("task:" + name for name in chain(list(state.live), list(state.ended))),
            ["domain:" + name for name in state.domains],
            ["worker:" + name for name in state.workers],
            names_of_keys(state),
        )
        refs: list[BlobRef] = []
        records = size = 0
        for part in batched(names, PART):
            fields: dict[str, bytes | None] = {}
            for portion in batched(part, SLICE):
                fields |= encode_fields(state, portion)
                await asyncio.sleep(0.001)  # let turns pass
            refs.append(await self._store(fields))
            records += len(fields)
            size += refs[-1].size
        return refs, records, size

    async def _store(self, fields: dict[str, bytes | None]) -> BlobRef:
        return await asyncio.to_thread(_put, self._blobs, fields | {MARK: self._mark})


def _put(blobs: Blobs, fields: dict[str, bytes | None]) -> BlobRef:
    return blobs.put(bytes(cramjam.zstd.compress(_encoder.encode(fields), level=1)))


async def stored(kafka: str, prefix: str) -> list[SnapshotStored]:
    """All announced snapshots of an installation, oldest first.

    Raises:
        Unavailable: the broker does not answer in time.
    """
    reader = LogReader(kafka, prefix, [SNAPSHOTS])
    found: list[SnapshotStored] = []
    await reader.start()
    try:
        async with asyncio.timeout(READ_S):
            while not await reader.caught_up():
                records = await reader.poll(0.25, 2000)
                found += [item.event for item in records if isinstance(item.event, SnapshotStored)]
    except TimeoutError as error:
        raise Unavailable(f"topic {prefix}{SNAPSHOTS} was not read within {READ_S:.0f} s") from error
    finally:
        await reader.stop()
    return found


async def newest(process: Process, policies: Policies, blobs: Blobs) -> dict[str, bytes]:
    """Fields of the newest snapshot of this shard that can be used, in the form in which Redis gives them; empty without any."""
    try:
        mine = [
            event for event in await stored(process.kafka, process.prefix) if event.shard == policies.shard
        ]
    except Unavailable as error:
        log.warning("no snapshot is looked for: %s", error)
        return {}
    for event in list(reversed(mine))[:TRIES]:
        if event.fold != FOLD_VERSION:
            log.warning(
                "the snapshot at seq %d is of fold version %d, this scheduler has %d: it is not used",
                event.seq,
                event.fold,
                FOLD_VERSION,
            )
            continue
        try:
            own = store_of(blobs, process.prefix, policies.shard)
            if await asyncio.to_thread(own.find, event.manifest.digest) is None:
                own = blobs  # written by an earlier version, which kept them among all other payloads
            return await asyncio.to_thread(load, own, event)
        except (BlobError, msgspec.MsgspecError) as error:
            log.warning("the snapshot at seq %d cannot be used: %s", event.seq, error)
    return {}


def load(blobs: Blobs, event: SnapshotStored) -> dict[str, bytes]:
    """Fields of a snapshot.

    Raises:
        BlobError: a part is missing or damaged.
        MsgspecError: a part is no part.
    """
    fields: dict[str, bytes | None] = {}
    for ref in manifest_of(blobs, event).parts:
        try:
            raw = bytes(cramjam.zstd.decompress(blobs.get(ref)))
        except cramjam.DecompressionError as error:
            raise BlobError(f"blob {ref.uri}: cannot be unpacked: {error}") from error
        fields.update(_parts.decode(raw))
    found = {name: value for name, value in fields.items() if value is not None and name != MARK}
    return found | {
        "epoch": str(event.epoch).encode(),
        "mark": f"{event.epoch}:{event.seq}".encode(),
        "journal": str(event.journal).encode(),
        "shards": str(event.shards).encode(),
    }
