"""What of the log may go. Invariant: nothing that the oldest kept snapshot of any shard needs, and nothing young.

The process that has shard 0 deletes, by offset: of each input what lies before the offsets of the oldest kept snapshot of every
shard, of each shard's journal what lies before that shard's. A shard without a snapshot keeps everything. The broker itself
deletes nothing of these topics.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from schemas.snapshots import SnapshotStored
from schemas.topics import DAY_MS
from services.runtime import retention
from services.runtime.blobs import Blobs
from services.runtime.closing import close
from services.runtime.errors import Unavailable
from services.runtime.settings import Process
from services.runtime.topics import admin
from services.scheduler.cellar import store_of, whole
from services.scheduler.durable import stored
from services.scheduler.policies import Policies
from services.scheduler.settings import JOURNAL
from services.scheduler.snapshot import FOLD_VERSION

EVERY_S = 600.0
ASK_S = 30.0
log = logging.getLogger(__name__)


def needed(events: Sequence[SnapshotStored], shards: int, kept: int) -> dict[str, int]:
    """`topic/partition` -> first offset that must stay, given all announced snapshots; empty if everything must.

    Only snapshots of this fold version count: another one cannot be gone on from.
    """
    first: dict[str, int] = {}
    for shard in range(shards):
        mine = [event for event in events if event.shard == shard and event.fold == FOLD_VERSION]
        if not mine or any(event.shards != shards for event in mine):
            return {}
        oldest = mine[-kept:][0] if len(mine) >= kept else None
        if oldest is None:
            return {}
        # The last entry before it, too: by that one a snapshot is known to be of this log.
        first[f"{JOURNAL}/{shard}"] = max(0, oldest.journal - 1)
        for name, offset in oldest.offsets.items():
            first[name] = min(first.get(name, offset), offset)
        # A partition that one shard has not read yet is needed from its beginning.
        for name in list(first):
            if not name.startswith(f"{JOURNAL}/") and name not in oldest.offsets:
                first[name] = 0
    return first


class Retention:
    """Deletes what is not needed any more, every so often."""

    def __init__(self, process: Process, policies: Policies) -> None:
        self._process, self._policies = process, policies

    async def run(self, every_s: float = EVERY_S) -> None:
        """Until cancelled; a failure is told and tried again the next time."""
        while True:
            await asyncio.sleep(every_s)
            try:
                gone = await self.once()
            except Unavailable as error:
                log.warning("%s; trying again", error)
            else:
                if gone:
                    log.info(
                        "the log begins at %s now", ", ".join(f"{name} {at}" for name, at in gone.items())
                    )

    async def once(self) -> dict[str, int]:
        """Delete what may go; `topic/partition` -> where it begins now, of those that were cut.

        Raises:
            Unavailable: the broker does not do it.
        """
        process, section = self._process, self._process.config.scheduler
        events = await stored(process.kafka, process.prefix)
        good = await asyncio.to_thread(self._whole, events, section.snapshots)
        first = needed(good, self._policies.shards, section.snapshots)
        if not first:
            return {}
        partitions = {_tp(process.prefix, name): offset for name, offset in first.items()}
        old = await self._older(partitions, time.time() * 1000.0 - section.log_days * DAY_MS)
        if not old:
            return {}
        async with admin(process.kafka) as client:
            begins = await retention.trim(client, old)
        return {
            f"{tp.topic.removeprefix(process.prefix)}/{tp.partition}": at for tp, at in sorted(begins.items())
        }

    def _whole(self, events: Sequence[SnapshotStored], kept: int) -> list[SnapshotStored]:
        """Of each shard the newest `kept` snapshots that are all there: the log may go only where one can be gone on from."""
        blobs = Blobs(self._process.blobs)
        found: list[SnapshotStored] = []
        for shard in range(self._policies.shards):
            own = store_of(blobs, self._process.prefix, shard)
            newest: list[SnapshotStored] = []
            for event in reversed([event for event in events if event.shard == shard]):
                if event.shards != self._policies.shards or whole(own, event) or whole(blobs, event):
                    newest.append(event)
                if len(newest) >= kept:
                    break
            found += reversed(newest)
        return found

    async def _older(
        self, limits: Mapping[TopicPartition, int], before_ms: float
    ) -> dict[TopicPartition, int]:
        """How far records may go that were written before this time, where that is further than where they begin."""
        consumer = AIOKafkaConsumer(bootstrap_servers=self._process.kafka, group_id=None)
        try:
            async with asyncio.timeout(ASK_S):
                await consumer.start()
                begins = await consumer.beginning_offsets(list(limits))
                young = await consumer.offsets_for_times(dict.fromkeys(limits, int(before_ms)))
                ends = await consumer.end_offsets(list(limits))
        except (KafkaError, TimeoutError, OSError) as error:
            raise Unavailable(f"old records cannot be looked for: {error or type(error).__name__}") from error
        finally:
            await close(consumer, "the retention's reader")
        found = {}
        for tp, limit in limits.items():
            at = young.get(tp)
            cut = min(limit, ends[tp] if at is None else at.offset)
            if cut > begins[tp]:
                found[tp] = cut
        return found


def _tp(prefix: str, name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("/")
    return TopicPartition(prefix + topic, int(partition))
