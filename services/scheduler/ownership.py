"""Which shards this process works on. Invariant: membership says who should, the journal decides who may.

The processes are members of one consumer group on the journal, whose partitions are the shards: a process that says nothing for
the session's length loses its shards to the others, one that is told to stop hands them over at once. The group only settles who
begins; a process that wrongly believes itself the owner is stopped by the journal (see `journal`), so nothing depends on clocks.
A rebalance takes all shards from all members for a moment: they pause then, and go on where they stand if they come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import LeaveGroupRequest

from services.runtime.closing import close
from services.runtime.errors import Unavailable
from services.runtime.topics import admin
from services.scheduler.settings import GROUP, JOURNAL

JOIN_S = 30.0
EVICT_S = 5.0
HEARTBEAT_S = 1.0
"""Longest pause between two heartbeats: a member learns by them that shards are to change hands."""
CONFIRM_S = 5.0
POLL_MS = 500
PAUSE_S = 2.0
"""A rebalance does not wait longer than this for a shard's turn to end."""
log = logging.getLogger(__name__)


class Ownership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Membership of one process."""

    def __init__(self, kafka: str, prefix: str, worker: str, *, session_s: float) -> None:
        """`worker`: name of the process; a predecessor of this name is taken for dead. `session_s`: the lease on shards."""
        self._kafka, self._topic, self._group = kafka, prefix + JOURNAL, prefix + GROUP
        self._worker, self._session_s = worker, session_s
        self._consumer: Any = None
        self._owned: frozenset[int] = frozenset()
        self._settled = asyncio.Event()
        """Set while no rebalance is under way."""
        self._busy = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.changed = asyncio.Event()
        """Set when shards came or went; the reader clears it."""

    @property
    def owned(self) -> frozenset[int]:
        """Shards of this process, as of the last rebalance."""
        return self._owned

    def owns(self, shard: int) -> bool:
        """Whether this process has the shard and no rebalance is under way."""
        return shard in self._owned and self._settled.is_set()

    async def join(self) -> None:
        """Become a member.

        Raises:
            Unavailable: the group cannot be joined in time.
        """
        await self._evict_namesake()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka,
            group_id=self._group,
            client_id=self._worker,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            session_timeout_ms=int(self._session_s * 1000),
            heartbeat_interval_ms=int(min(HEARTBEAT_S, self._session_s / 4) * 1000),
            rebalance_timeout_ms=int(self._session_s * 1000),
            max_poll_interval_ms=24 * 3600 * 1000,
            partition_assignment_strategy=(StickyPartitionAssignor,),
        )
        consumer.subscribe([self._topic], listener=self)
        self._consumer = consumer
        try:
            await asyncio.wait_for(consumer.start(), JOIN_S)
        except (KafkaError, TimeoutError, OSError) as error:
            self._consumer = None
            await close(consumer, "the scheduler's membership")
            raise Unavailable(
                f"group {self._group} cannot be joined at {self._kafka}: {error or type(error).__name__}"
            ) from error

    async def keep(self) -> None:
        """Serve the membership until cancelled; what the journal holds is not read here.

        Raises:
            Unavailable: the membership has failed for good.
        """
        while True:
            self._consumer.pause(*self._consumer.assignment())
            try:
                await self._consumer.getmany(timeout_ms=POLL_MS)
            except KafkaError as error:
                raise Unavailable(
                    f"group {self._group}: the membership failed: {type(error).__name__}: {error}"
                ) from error

    async def leave(self) -> None:
        """Hand the shards over at once."""
        consumer, self._consumer = self._consumer, None
        self._owned = frozenset()
        if consumer is not None:
            await close(consumer, "the scheduler's membership")

    async def confirm(self, shard: int) -> bool:
        """Whether the broker itself says now that the shard is ours: a commit of one that is not ours is refused."""
        if not self.owns(shard) or self._consumer is None:
            return False
        try:
            await asyncio.wait_for(self._consumer.commit({TopicPartition(self._topic, shard): 0}), CONFIRM_S)
        except (KafkaError, TimeoutError) as error:
            log.info("shard %d is not confirmed: %s", shard, type(error).__name__)
            return False
        return self.owns(shard)

    async def settled(self) -> None:
        """Wait out a rebalance.

        Raises:
            Unavailable: it does not end.
        """
        longest = JOIN_S + 2 * self._session_s
        try:
            await asyncio.wait_for(self._settled.wait(), longest)
        except TimeoutError as error:
            raise Unavailable(
                f"group {self._group}: shards have been changing hands for {longest:.0f} s; is the broker well?"
            ) from error

    def enter(self) -> None:
        """A turn begins: a rebalance waits for its end, for a moment."""
        self._busy += 1
        self._idle.clear()

    def exit(self) -> None:
        """A turn has ended."""
        self._busy -= 1
        if self._busy == 0:
            self._idle.set()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """Called by the client when a rebalance begins."""
        self._settled.clear()
        try:
            await asyncio.wait_for(self._idle.wait(), PAUSE_S)
        except TimeoutError:
            log.warning("a turn is still under way as shards change hands; the journal keeps the order")

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Called by the client when it is over."""
        owned = frozenset(tp.partition for tp in assigned)
        if owned != self._owned or not self._settled.is_set():
            log.info("shards of this scheduler: %s", sorted(owned) or "none, standing by")
        self._owned = owned
        self._settled.set()
        self.changed.set()

    async def _evict_namesake(self) -> None:
        """Tell the group that a member with this process's name has gone: it was killed, or the name would not be free.

        Without this its shards would wait for its session to run out. If it lives nonetheless, it joins again as any other.
        """
        async with admin(self._kafka) as client:
            try:
                async with asyncio.timeout(EVICT_S):
                    for member in await self._members(client):
                        if member[1] == self._worker:
                            node = await client.find_coordinator(self._group)
                            await client._send_request(LeaveGroupRequest(self._group, member[0]), node)  # noqa: SLF001 (the client has no public call for it)
                            log.info("member %s of the same name is taken for dead", member[0])
            except (KafkaError, TimeoutError, OSError) as error:
                log.debug("no predecessor could be looked for (%s); its session may have to run out", error)

    async def _members(self, client: AIOKafkaAdminClient) -> list[tuple[str, str]]:
        found = []
        for response in await client.describe_consumer_groups([self._group]):
            for code, _, _, _, _, members, *_ in response.groups:
                if not code:
                    found += [(member[0], member[1]) for member in members]
        return found
