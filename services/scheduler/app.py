"""Wiring of the scheduler. Invariant: dispatch begins only when the state is recovered, claimed and stored."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from services.runtime.catalog import Catalog
from services.runtime.errors import Unavailable
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Producer
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.scheduler.handlers import records_of
from services.scheduler.policies import Policies, policies_of
from services.scheduler.recovery import Recovery
from services.scheduler.settings import HEARTBEAT_S, INPUTS, PROGRESS_S, redis_of
from services.scheduler.store import Store
from services.scheduler.turns import Turns, steady_clock

log = logging.getLogger(__name__)


def catalog_of(process: Process) -> Catalog:
    """The domains of the run.

    Raises:
        CatalogError: a card that cannot be used.
    """
    domains = process.config.domains
    return Catalog.load(domains.paths, domains.include, domains.exclude)


async def run(process: Process, lifecycle: Lifecycle) -> None:
    """Schedule until told to stop.

    Raises:
        BadInput: settings or cards that cannot be used.
        Unavailable: the broker fails, or a newer scheduler has taken over.
    """
    catalog = catalog_of(process)
    policies = policies_of(catalog.cards, process.config)
    store = Store(redis_of(process), process.prefix)
    producer = Producer(process.kafka, process.prefix, process.worker)
    lifecycle.progress.beat("turn", deadline_s=PROGRESS_S * 10)  # recovery of a long log takes its time
    try:
        await producer.start()
        recovery = await recover(process, policies, store, producer)
        try:
            await _schedule(recovery, process, lifecycle, policies, catalog, producer, store)
        finally:
            await recovery.stop()
    finally:
        await producer.stop()
        await store.close()


async def recover(process: Process, policies: Policies, store: Store, producer: Producer) -> Recovery:
    """The recovered and claimed state, its readers still open.

    Raises:
        Unavailable: the broker fails.
    """
    started = time.monotonic()
    try:
        fields = await store.load()
    except Unavailable as error:
        log.warning("%s: rebuilding from the log", error)
        fields = {}
    recovery = Recovery(process.kafka, process.prefix, policies)
    try:
        await recovery.start(fields)
        await recovery.follow()
        await recovery.claim(producer, policies.run)
    except BaseException:
        await recovery.stop()
        raise
    meta = recovery.state.meta
    if meta.policies != policies.digest():
        log.warning(
            "the cards or the run's settings differ from those this log began with (%s, now %s): tasks go on under the new ones",
            meta.policies,
            policies.digest(),
        )
    log.info(
        "recovered seq %d as epoch %d in %.2f s: %d live and %d terminal tasks, %d journal entries folded",
        meta.seq,
        meta.epoch,
        time.monotonic() - started,
        len(recovery.state.live),
        len(recovery.state.ended),
        recovery.folded,
    )
    return recovery


async def _schedule(
    recovery: Recovery,
    process: Process,
    lifecycle: Lifecycle,
    policies: Policies,
    catalog: Catalog,
    producer: Producer,
    store: Store,
) -> None:
    meta = recovery.state.meta
    reader = LogReader(process.kafka, process.prefix, INPUTS, start=meta.offsets, producer=producer)
    turns = Turns(
        state=recovery.state,
        policies=policies,
        catalog=catalog,
        reader=reader,
        producer=producer,
        store=store,
        journal=recovery.position,
        tick_s=process.config.scheduler.tick_s,
        clock=steady_clock(meta.now),
    )
    epoch, seq = recovery.last_mark
    again = records_of(recovery.last, catalog, epoch=epoch, seq=seq)
    if again:
        await producer.emit(*again)
    await turns.save()  # only now: a stored batch is one whose effects are out
    await recovery.stop()
    started_at = time.time()
    beat_at = float("-inf")
    try:
        await reader.start()
        lifecycle.progress.ready()
        while not lifecycle.stop.is_set():
            await turns.turn()
            lifecycle.progress.beat("turn", deadline_s=PROGRESS_S)
            if time.monotonic() - beat_at >= HEARTBEAT_S:
                beat_at = time.monotonic()
                await turns.heartbeat(process.worker, os.getpid(), started_at)
            await asyncio.sleep(0)
    finally:
        await reader.stop()
