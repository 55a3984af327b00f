"""Wiring of the trainer service."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from schemas.cards import Timeouts
from services.runtime.catalog import Catalog
from services.runtime.errors import BadInput
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Producer, ProducerError
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.trainer import handlers, settings
from services.trainer.assemble import Assembler
from services.trainer.loop import Loop
from services.trainer.session import open_session

HEARTBEAT_S = 1.0
log = logging.getLogger(__name__)


async def run(process: Process, life: Lifecycle) -> None:
    """Train until the run is done or the service is told to stop."""
    if int(os.environ.get("WORLD_SIZE") or "1") > 1:
        raise BadInput("WORLD_SIZE is above 1, but this trainer is one process; start it without torchrun")
    config = process.config
    chosen = settings.of(config, process.run_dir)
    domains = Catalog.load(config.domains.paths, config.domains.include, config.domains.exclude)
    life.progress.beat("trainer", deadline_s=600.0)
    session, new = await asyncio.to_thread(open_session, chosen, domains.cards)
    log.info("%s at version %d of run %s", "starting" if new else "resuming", session.version, chosen.run)
    producer = Producer(process.kafka, process.prefix, process.worker)
    await producer.start()
    reader: LogReader | None = None
    try:
        record = session.record
        # Also when resuming: the process may have ended between the files and the event.
        await producer.emit(
            handlers.published(
                record.run,
                session.policy,
                final=record.final,
                metrics=record.metrics,
                groups=record.groups,
            )
        )
        if record.final:
            return
        # An observer of both topics: what cannot be decoded is the owners' to bury.
        reader = LogReader(
            process.kafka, process.prefix, list(handlers.SOURCES), start=record.offsets or "earliest"
        )
        await reader.start()
        assembler = Assembler(
            vocabulary=session.vocabulary,
            max_staleness=chosen.max_staleness,
            timeout_s=settings.silence_s(Timeouts()),
            timeouts=settings.silences(domains.cards),
            version=session.version,
            saved=record.assembly,
        )
        loop = Loop(session, assembler, reader, producer, life)
        life.progress.ready()
        beating = asyncio.create_task(_beat(process.worker, loop, reader, producer, life), name="heartbeat")
        try:
            await loop.run()
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
    finally:
        if reader is not None:
            await reader.stop()
        await producer.stop()


async def _beat(worker: str, loop: Loop, reader: LogReader, producer: Producer, life: Lifecycle) -> None:
    started = time.time()
    while True:
        stats = loop.stats()
        try:
            await producer.emit(
                handlers.heartbeat(
                    worker,
                    version=int(stats["version"]),
                    offsets=reader.positions(),
                    stats=stats,
                    draining=life.stop.is_set(),
                    started_at=started,
                )
            )
        except ProducerError as error:
            # A missed sign of life loses nothing; the loop itself fails on the same broker where it matters.
            log.warning("heartbeat not sent: %s", error)
        await asyncio.sleep(HEARTBEAT_S)
