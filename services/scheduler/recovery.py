"""Start-up. Invariant: what comes out is the state that the log describes, whatever Redis held, and the log is claimed.

From the snapshot, if there is one, else from nothing: fold the journal's further entries, claim the journal, fold what a
scheduler that is being replaced wrote before the claim. Effects of all entries but the last were confirmed before the next
entry was written; those of the last are returned, to be done again.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping

from schemas.journal import BatchFolded
from services.runtime.errors import Unavailable
from services.runtime.producer import Producer
from services.runtime.reader import LogReader
from services.scheduler.effects import Effect
from services.scheduler.fold import step
from services.scheduler.journal import batch_of, counts, outgoing
from services.scheduler.policies import Policies
from services.scheduler.settings import CLAIM_S, INPUTS, JOURNAL
from services.scheduler.snapshot import SnapshotError, restore
from services.scheduler.state import State

log = logging.getLogger(__name__)


class Recovery:
    """Follows the journal with a state of its own."""

    def __init__(self, kafka: str, prefix: str, policies: Policies) -> None:
        self._kafka, self._prefix = kafka, prefix
        self._policies = policies
        self._inputs = LogReader(kafka, prefix, INPUTS)
        self._journal = LogReader(kafka, prefix, [JOURNAL])
        self.state = State()
        self.last: list[Effect] = []
        """Effects of the newest entry that was folded here."""
        self.last_mark = (0, 0)
        """Its epoch and sequence number."""
        self.folded = 0
        self.claimed_by = ""
        """Envelope id of the newest claim."""

    async def start(self, fields: Mapping[str, bytes]) -> None:
        """Connect, and stand where `fields` (of a snapshot, or empty) end.

        Raises:
            Unavailable: no broker answers, or a topic is missing.
        """
        offset = self._adopt(fields)
        await self._inputs.start()
        self._journal = LogReader(self._kafka, self._prefix, [JOURNAL], start={f"{JOURNAL}/0": offset})
        await self._journal.start()
        end = (await self._journal.end_offsets())[f"{JOURNAL}/0"]
        if offset > end:
            log.warning(
                "the snapshot is ahead of the log (journal %d > %d): rebuilding from the log", offset, end
            )
            self.state = State()
            await self._journal.stop()
            self._journal = LogReader(self._kafka, self._prefix, [JOURNAL], start="earliest")
            await self._journal.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._inputs.stop()
        await self._journal.stop()

    @property
    def position(self) -> int:
        """Offset of the next journal entry."""
        return self._journal.positions()[f"{JOURNAL}/0"]

    async def follow(self, *, until: tuple[int, int] | None = None) -> None:
        """Fold the journal to its present end, or up to and with entry (epoch, seq).

        Raises:
            Unavailable: the broker fails, or input that an entry names is gone.
        """
        end = (await self._journal.end_offsets())[f"{JOURNAL}/0"]
        while self.position < end:
            for record in await self._journal.poll(1.0, 1000):
                meta = self.state.meta
                if until is not None and (meta.epoch, meta.seq) == until:
                    return
                entry = record.event
                if isinstance(entry, BatchFolded) and counts(meta, entry):
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
                        caught_up=False,
                    )
                    mine = outgoing(entry, nonce=uuid.uuid4().hex)
                    await producer.emit(mine)
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
        effects = step(self.state, self._policies, batch_of(entry, records))
        self.folded += 1
        if claim:
            self.claimed_by = envelope_id
        else:
            self.last, self.last_mark = effects, (entry.epoch, entry.seq)

    def _adopt(self, fields: Mapping[str, bytes]) -> int:
        if not fields:
            return 0
        try:
            self.state = restore(fields)
            return int(fields.get("journal", b"0"))
        except (SnapshotError, ValueError) as error:
            log.warning("%s: rebuilding from the log", error)
            self.state = State()
            return 0
