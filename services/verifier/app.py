"""Wiring of the verifier: trajectories to the pool, verdicts to `rewards`, a heartbeat beside them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import cache

from schemas.heartbeats import WorkerHeartbeat
from schemas.topics import HEARTBEATS, TRAJECTORIES
from services.runtime.blobs import BlobError, Blobs
from services.runtime.catalog import Catalog
from services.runtime.consumer import WorkConsumer
from services.runtime.errors import Unavailable
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Outgoing, Producer
from services.runtime.settings import Process
from services.verifier import cards, image, sizing
from services.verifier.bounds import Bounds
from services.verifier.breaker import Breaker
from services.verifier.handlers import Handler
from services.verifier.jail import JailUnavailable
from services.verifier.keep import Keep
from services.verifier.outbox import Outbox
from services.verifier.pool import Pool
from services.verifier.settings import Settings, settings

GROUP = "verifier"
BEAT_DEADLINE_S = 30.0
SWEEP_S = 3600.0
log = logging.getLogger(__name__)


def make_pool(catalog: Catalog, chosen: Settings, keep: Keep | None = None) -> Pool:
    """The pool that the settings describe, not started; `keep` for long answers. Raises JailUnavailable."""
    section = chosen.verifier
    return Pool(
        catalog.cards,
        chosen.slots,
        slots=sizing.slots(section.slots, catalog.cards.values()),
        cache=section.cache,
        reverify=section.reverify,
        answer_limit=section.answer_limit,
        queue_limit=section.window,
        hold=section.window // 2,
        image=image.image(),
        breaker=Breaker(section.breaker, section.breaker_pause_s, section.breaker_pause_max_s),
        bounds=Bounds(section.check_cpu_s, section.check_memory_mib << 20),
        recycle=section.recycle,
        keep=keep,
        worker=chosen.worker,
    )


async def run(process: Process, lifecycle: Lifecycle) -> None:
    """Verify until told to stop; then finish what was taken."""
    chosen = settings(process)
    domains = process.config.domains
    catalog = Catalog.load(domains.paths, domains.include, domains.exclude)
    cards.check_all(catalog)
    try:
        keep = Keep(process.blobs)
        pool = make_pool(catalog, chosen, keep)
        await pool.start()
    except JailUnavailable as error:
        raise Unavailable(f"no jail, no verdicts: {error}") from error
    producer = Producer(process.kafka, process.prefix, process.worker)
    consumer = WorkConsumer(
        process.kafka,
        process.prefix,
        [TRAJECTORIES.name],
        GROUP,
        producer,
        window=chosen.verifier.window,
        redeliveries=chosen.verifier.redeliveries,
    )
    try:
        await producer.start()
        await consumer.start()
        await _work(process, lifecycle, chosen, pool, producer, consumer, keep)
    finally:
        try:
            await consumer.stop()
        finally:
            await pool.close()
            await producer.stop()


async def _work(
    process: Process,
    lifecycle: Lifecycle,
    chosen: Settings,
    pool: Pool,
    producer: Producer,
    consumer: WorkConsumer,
    keep: Keep,
) -> None:
    outbox = Outbox(producer)
    blobs = cache(lambda: Blobs(process.blobs))
    handler = Handler(pool, outbox, blobs, process.worker, chosen.verifier.redeliveries, consumer.progressed)
    reading = asyncio.create_task(consumer.run(handler.handle, lifecycle.stop), name="consumer")
    beside = {
        asyncio.create_task(outbox.run(), name="outbox"),
        asyncio.create_task(_beat(chosen, lifecycle, pool, producer, consumer), name="heartbeat"),
        asyncio.create_task(_sweep(keep, chosen.verifier.progress_keep_s), name="sweep"),
    }
    broken = pool.failed
    if broken is None:
        raise RuntimeError("the pool has not been started")
    watched: set[asyncio.Future[None]] = {reading, handler.failed, broken, *beside}
    lifecycle.progress.ready()
    try:
        await _until(reading, watched)
        pool.hand_back()
        finishing = asyncio.create_task(_finish(handler, outbox), name="drain")
        await _until(finishing, {finishing, handler.failed, broken, *beside})
    finally:
        for task in (reading, *beside):
            task.cancel()
        await asyncio.gather(reading, *beside, return_exceptions=True)


async def _finish(handler: Handler, outbox: Outbox) -> None:
    """What was taken gets its verdict; the process's drain deadline bounds this."""
    await handler.drained()
    await outbox.flushed()


async def _sweep(keep: Keep, older_s: float) -> None:
    """Remove, now and then, the progress of answers that nobody has gone on with for long."""
    while True:
        try:
            removed = await asyncio.to_thread(keep.sweep, older_s)
        except BlobError as error:
            log.warning("old progress stays for now: %s", error)
        else:
            log.info("swept the progress of %d old answers", removed)
        await asyncio.sleep(min(older_s, SWEEP_S))


async def _until(wanted: asyncio.Future[None], watched: set[asyncio.Future[None]]) -> None:
    """Wait for `wanted`; an exception of any of `watched` is raised at once."""
    while not wanted.done():
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
    wanted.result()


async def _beat(
    chosen: Settings, lifecycle: Lifecycle, pool: Pool, producer: Producer, consumer: WorkConsumer
) -> None:
    """A heartbeat a period, with the counters for the live view; the last one says that we drain."""
    started = time.time()
    while True:
        stats = {**pool.stats, "unfinished": float(consumer.unfinished), "workers": float(len(pool.pids))}
        stats |= {f"consumer_{name}": value for name, value in consumer.stats.items()}
        event = WorkerHeartbeat(
            worker=chosen.worker,
            service="verifier",
            slots=pool.slots,
            draining=lifecycle.stop.is_set(),
            offsets=consumer.positions(),
            stats=stats,
            pid=os.getpid(),
            started_at=started,
        )
        await producer.emit(Outgoing(topic=HEARTBEATS.name, event=event, key=chosen.worker))
        lifecycle.progress.beat("heartbeat", deadline_s=BEAT_DEADLINE_S)
        await asyncio.sleep(chosen.verifier.heartbeat_s)
