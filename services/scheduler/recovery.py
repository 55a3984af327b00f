"""Start-up. Invariant: what comes out is the state that the log describes, whatever Redis held, and the log is claimed.

From a snapshot, if there is one that fits the log, else from nothing: fold the journal's further entries, claim the journal,
fold what a scheduler that is being replaced wrote before the claim. Effects of all entries but the last were confirmed before
the next entry was written; those of the last are returned, to be done again. What is missing from the log is never passed over.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from itertools import batched

from schemas.journal import BatchFolded
from services.runtime.errors import Unavailable
from services.runtime.producer import Producer
from services.runtime.reader import LogReader
from services.scheduler.effects import Effect
from services.scheduler.fold import step
from services.scheduler.journal import Gap, batch_of, counts, outgoing, same_division
from services.scheduler.policies import Policies
from services.scheduler.settings import CLAIM_S, JOURNAL, inputs
from services.scheduler.snapshot import Restorer, SnapshotError
from services.scheduler.state import State
from services.scheduler.store import BOOKKEEPING

log = logging.getLogger(__name__)
PORTION = 10_000
"""Fields that are restored between two looks at the event loop: who owns the shard must keep saying so."""
BEFORE = BOOKKEEPING | {"meta"}
LOOK = 200
"""Journal entries among which a snapshot's last one is looked for: only those of schedulers that were replaced come after it."""
AHEAD = 1000
"""Journal entries in one read."""


Source = Callable[[], Awaitable[Mapping[str, bytes]]]
"""Gives the fields of a snapshot in the form in which Redis holds them, empty without any; asked only when it is its turn."""


class Recovery:
    """Follows the journal of one shard with a state of its own."""

    def __init__(self, kafka: str, prefix: str, policies: Policies) -> None:
        self._kafka, self._prefix = kafka, prefix
        self._policies = policies
        self._name = f"{JOURNAL}/{policies.shard}"
        self._inputs = LogReader(kafka, prefix, inputs(policies.shards))
        self._journal = self._at({})
        self.state = State()
        self.last: list[Effect] = []
        """Effects of the newest entry that was folded here."""
        self.last_mark = (0, 0)
        """Its epoch and sequence number."""
        self.folded = 0
        self.claimed_by = ""
        """Envelope id of the newest claim."""
        self.came_from = "the log"
        """What the state was restored from."""

    async def start(self, *sources: Source) -> None:
        """Connect, and stand where the first of these snapshots ends that can be gone on from; else at the log's beginning.

        Raises:
            Unavailable: no broker answers, or a topic is missing.
            Gap: the log does not hold what is needed to go on from there.
        """
        await self._inputs.start()
        self._journal = self._at({self._name: 0})
        await self._journal.start()
        end = (await self._journal.end_offsets())[self._name]
        for source in sources:
            fields = await source()
            offset = await self._adopt(fields, end) if fields else None
            if offset is None:
                continue
            missing = self._missing(offset) or await self._beyond() or await self._foreign(offset)
            if missing:
                log.warning("a snapshot does not fit the log and is not used: %s", missing)
                self.state, self.came_from = State(), "the log"
                continue
            if offset:
                await self._journal.stop()
                self._journal = self._at({self._name: offset})
                await self._journal.start()
            return
        missing = self._missing(0)
        if missing:
            raise Gap(
                f"the log does not hold what the state is to be rebuilt from: {missing} and no snapshot is newer; "
                "restore Redis or the blob store, or begin a new log with another TEMPER_PREFIX"
            )

    async def stop(self) -> None:
        """Disconnect."""
        await self._inputs.stop()
        await self._journal.stop()

    @property
    def position(self) -> int:
        """Offset of the next journal entry."""
        return self._journal.positions()[self._name]

    async def follow(self, *, until: tuple[int, int] | None = None) -> None:
        """Fold the journal to its present end, or up to and with entry (epoch, seq).

        Raises:
            Unavailable: the broker fails, or input that an entry names is gone.
            Gap: entries are missing, or of another division into shards.
        """
        end = (await self._journal.end_offsets())[self._name]
        while self.position < end:
            for record in await self._journal.poll(1.0, AHEAD):
                meta = self.state.meta
                if until is not None and (meta.epoch, meta.seq) == until:
                    return
                entry = record.event
                if not isinstance(entry, BatchFolded):
                    continue
                same_division(entry, self._policies.shard, self._policies.shards)
                try:
                    next_one = counts(meta, entry)
                except Gap as error:
                    raise Gap(
                        f"journal/{record.partition} offset {record.offset}: {error}; restore the topic, or start from a "
                        "snapshot that is newer than the gap, or begin a new log with another TEMPER_PREFIX"
                    ) from error
                if next_one:
                    await self._take(entry, record.envelope.id)

    async def claim(self, producer: Producer, run: str) -> None:
        """Make this incarnation the one whose entries count.

        Raises:
            Unavailable: the claim does not come back from the journal in time.
        """
        try:
            async with asyncio.timeout(CLAIM_S):
                while True:
                    meta = self.state.meta
                    entry = BatchFolded(
                        run=run,
                        seq=meta.seq + 1,
                        now=max(meta.now, time.time()),
                        epoch=meta.epoch + 1,
                        shard=self._policies.shard,
                        shards=self._policies.shards,
                        caught_up=False,
                    )
                    mine = outgoing(entry, nonce=uuid.uuid4().hex)
                    await producer.append(mine, partition=self._policies.shard)
                    await self.follow()
                    if self.claimed_by == mine.id:
                        return
        except TimeoutError as error:
            raise Unavailable(
                f"the journal could not be claimed within {CLAIM_S:.0f} s; do schedulers compete?"
            ) from error

    async def _take(self, entry: BatchFolded, envelope_id: str) -> None:
        records = []
        for part in entry.ranges:
            records += await self._inputs.read_range(part.topic, part.partition, part.first, part.next)
        claim = entry.epoch > self.state.meta.epoch
        effects = step(self.state, self._policies, batch_of(entry, records, self.state, self._policies))
        self.folded += 1
        if claim:
            self.claimed_by = envelope_id
        else:
            self.last, self.last_mark = effects, (entry.epoch, entry.seq)
        await asyncio.sleep(0)

    async def _adopt(self, fields: Mapping[str, bytes], end: int) -> int | None:
        """Restore the state; where the journal goes on, or None if this snapshot cannot be used."""
        offset = _journal_of(fields)
        if offset > end:
            log.warning("a snapshot is ahead of the log (journal %d > %d) and is not used", offset, end)
            return None
        if "meta" not in fields:
            log.warning("a snapshot has no beginning (it was written in part) and is not used")
            return None
        shards = int(fields.get("shards", b"1"))
        if shards != self._policies.shards:
            raise Gap(
                f"this installation is divided into {shards} shards, not {self._policies.shards}: a task would change its "
                f"owner; set scheduler.shards = {shards}, or begin a new log with another TEMPER_PREFIX"
            )
        restorer = Restorer()
        try:
            restorer.add(
                {"meta": fields.get("meta", b"")}
            )  # first, for another version's fields need not decode
            for portion in batched(fields.items(), PORTION):
                restorer.add({name: value for name, value in portion if name not in BEFORE})
                await asyncio.sleep(0)
            for _ in restorer.placing():
                await asyncio.sleep(0)
            self.state = restorer.finish()
        except SnapshotError as error:
            log.warning("%s: it is not used", error)
            return None
        self.came_from = "a snapshot"
        return offset

    def _missing(self, offset: int) -> str:
        """What the log no longer holds of what comes after the state and `offset` of the journal; empty if it holds all."""
        needed = {self._name: offset} | {
            name: self.state.meta.offsets.get(name, 0) for name in self._inputs.beginnings
        }
        begins = self._inputs.beginnings | self._journal.beginnings
        for name, first in sorted(needed.items()):
            if begins[name] > first:
                return f"{name} begins at offset {begins[name]}, {first} is needed"
        return ""

    async def _beyond(self) -> str:
        """What of the inputs the state has read that the log does not hold: a topic was emptied, or made anew."""
        ends = await self._inputs.end_offsets()
        for name, next_one in sorted(self.state.meta.offsets.items()):
            if name in ends and ends[name] < next_one:
                return f"{name} ends at offset {ends[name]}, {next_one} is needed; was the topic made anew?"
        return ""

    async def _foreign(self, offset: int) -> str:
        """Whether the journal before `offset` says that the state is of another log; empty if not, or if that is gone.

        The entry that the state names as its last must be there with the same time: what a Redis holds that served another
        log before has the same name, but not the same entries.
        """
        first = max(self._journal.beginnings[self._name], offset - LOOK)
        if first >= offset or not offset:
            return ""
        meta = self.state.meta
        for record in reversed(await self._journal.read_range(JOURNAL, self._policies.shard, first, offset)):
            entry = record.event
            if isinstance(entry, BatchFolded) and (entry.epoch, entry.seq) == (meta.epoch, meta.seq):
                if entry.now == meta.now:
                    return ""
                break
        return (
            f"it ends with entry {meta.seq} of epoch {meta.epoch}, which {self._name} does not hold before offset "
            f"{offset}: it is of another log"
        )

    def _at(self, start: Mapping[str, int]) -> LogReader:
        return LogReader(self._kafka, self._prefix, [JOURNAL], start=start, partition=self._policies.shard)


def _journal_of(fields: Mapping[str, bytes]) -> int:
    text = fields.get("journal", b"0")
    return int(text) if text.isdigit() else 0
