"""A group member's partitions. Invariant: what is known about a partition is dropped the moment it is revoked.

Commits carry, beside each offset, how often the unfinished records from there on were delivered (`window`), so that the
knowledge outlives the process that had it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from services.runtime import faults
from services.runtime.closing import close
from services.runtime.errors import Unavailable
from services.runtime.topics import admin
from services.runtime.window import Ledger, parse_deliveries, parse_finished
from services.runtime.wire import RawRecord

JOIN_S = 30.0
OPEN_S = 30.0
COMMIT_S = 5.0
REVOKE_S = 2.0
PATIENCE_S = 60.0
"""Commits may fail this long before the consumer gives up."""
MOVED = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""The partitions belong to somebody else by now: what we know about them no longer counts."""

LARGEST_FETCH = 16 << 20
STATS = (
    "records",
    "done",
    "dead_letters",
    "unknown",
    "commits",
    "commit_failures",
    "rebalances",
    "redelivered",
    "ignored",
    "skipped",
)

log = logging.getLogger(__name__)


class Assignment(ConsumerRebalanceListener):  # type: ignore[misc]
    """Ledgers of the assigned partitions, their commits, and the rebalances that end them."""

    def __init__(self, kafka: str, group: str, stats: dict[str, float], forget: Callable[[], None]) -> None:
        """`stats` is counted into; `forget` is called, without waiting, when everything is revoked."""
        self._kafka, self._group, self._stats, self._forget = kafka, group, stats, forget
        self.consumer: Any = None
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.generation = 0
        """Grows with each revocation; records fetched under an older one are delivered again to whoever has them now."""
        self.committed_at = 0.0
        """Monotonic seconds of the last try."""
        self._committed: dict[TopicPartition, tuple[int, str]] = {}
        self._failing_since: float | None = None

    @property
    def unfinished(self) -> int:
        """Records delivered and not finished."""
        return sum(ledger.unfinished for ledger in self.ledgers.values())

    def holds(self, tp: TopicPartition, ledger: Ledger) -> bool:
        """Whether the partition has been ours without a break since `ledger` was opened."""
        return self.ledgers.get(tp) is ledger

    async def join(
        self, names: list[str], *, client_id: str, instance: str, session_s: float
    ) -> AIOKafkaConsumer:
        """Become a member; `names` are the topics' full names.

        Raises:
            Unavailable: the group cannot be joined in time.
        """
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._kafka,
            group_id=self._group,
            group_instance_id=instance or None,
            client_id=client_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(session_s * 1000),
            heartbeat_interval_ms=int(session_s * 300),
            max_partition_fetch_bytes=LARGEST_FETCH,
            fetch_max_wait_ms=250,
        )
        consumer.subscribe(names, listener=self)
        self.consumer = consumer
        try:
            await asyncio.wait_for(consumer.start(), JOIN_S)
        except (KafkaError, TimeoutError, OSError) as error:
            self.consumer = None
            await close(consumer, "the consumer")
            raise Unavailable(
                f"group {self._group}: cannot be joined at {self._kafka}: {error or type(error).__name__}"
            ) from error
        return consumer

    async def leave(self) -> None:
        """Commit what is finished, and hand the rest back in good order."""
        if self.consumer is None:
            return
        try:
            await self.commit(survived=True, deadline_s=REVOKE_S)
        finally:
            consumer, self.consumer = self.consumer, None
            self.clear()
            await close(consumer, "the consumer")

    async def open(self, first: dict[TopicPartition, int]) -> None:
        """Start ledgers at `first` offsets, with the delivery counts that were committed beside the offsets.

        Raises:
            Unavailable: the broker does not say what was committed.
        """
        generation = self.generation
        try:
            async with admin(self._kafka) as client:
                stored = await asyncio.wait_for(
                    client.list_consumer_group_offsets(self._group, partitions=list(first)), OPEN_S
                )
        except (KafkaError, TimeoutError) as error:
            raise Unavailable(
                f"group {self._group}: its offsets cannot be read: {error or type(error).__name__}"
            ) from error
        if generation != self.generation:
            return
        for tp, offset in first.items():
            committed = stored.get(tp)
            if committed is None or committed.offset < 0 or committed.offset > offset:
                self.ledgers[tp] = Ledger(offset)
            else:
                counts = parse_deliveries(committed.offset, committed.metadata or "")
                finished = parse_finished(committed.offset, committed.metadata or "")
                self.ledgers[tp] = Ledger(committed.offset, counts, finished)

    async def commit(self, *, survived: bool = False, deadline_s: float = COMMIT_S) -> None:
        """Commit what changed; a failed commit is counted, for the next one carries the same.

        `survived`: unfinished records are handed back in good order, so this delivery does not count against them.

        Raises:
            Unavailable: no commit has worked for a minute.
        """
        self.committed_at = time.monotonic()
        now = {tp: (it.committable, it.metadata(survived=survived)) for tp, it in self.ledgers.items()}
        due = {tp: what for tp, what in now.items() if self._committed.get(tp) != what}
        if not due or self.consumer is None:
            return
        faults.at("consumer:before-commit")
        try:
            await asyncio.wait_for(self.consumer.commit(due), deadline_s)
        except MOVED as error:
            self._stats["commit_failures"] += 1
            log.info("commit refused, the partitions are moving: %s", type(error).__name__)
        except (KafkaError, TimeoutError) as error:
            self._stats["commit_failures"] += 1
            self._failing_since = self._failing_since or time.monotonic()
            if time.monotonic() - self._failing_since > PATIENCE_S:
                raise Unavailable(
                    f"group {self._group}: no commit for {PATIENCE_S:.0f} s: {type(error).__name__}: {error}"
                ) from error
            log.warning("commit failed and is tried again: %s", error or type(error).__name__)
        else:
            self._stats["commits"] += 1
            self._failing_since = None
            self._committed.update((tp, what) for tp, what in due.items() if tp in self.ledgers)

    def clear(self) -> None:
        """Drop everything."""
        self.generation += 1
        self.ledgers.clear()
        self._committed.clear()
        self._forget()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """Called by the client. Never waits for work or for the loop: one commit with a short deadline."""
        try:
            if self.ledgers:
                await self.commit(survived=True, deadline_s=REVOKE_S)
        finally:
            self.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:  # noqa: ARG002
        """Called by the client; ledgers are opened with the first records."""
        self._stats["rebalances"] += 1


def partition_of(raw: RawRecord) -> TopicPartition:
    """The partition a record came from."""
    return TopicPartition(raw.topic, raw.partition)
