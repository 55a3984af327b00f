"""One shard in this process. Invariant: dispatch begins when the state is recovered and claimed, and its effects are out."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from services.runtime.blobs import Blobs
from services.runtime.catalog import Catalog
from services.runtime.errors import Unavailable
from services.runtime.producer import Producer
from services.runtime.reader import LogReader
from services.runtime.settings import Process
from services.scheduler.durable import Durable, newest
from services.scheduler.journal import Fenced, Journal
from services.scheduler.outbox import outbox
from services.scheduler.ownership import Ownership
from services.scheduler.policies import Policies
from services.scheduler.projection import Projection
from services.scheduler.recovery import Recovery
from services.scheduler.retention import Retention
from services.scheduler.settings import FETCH_WAIT_MS, HEARTBEAT_S, inputs, redis_of
from services.scheduler.store import Store
from services.scheduler.turns import Turns, steady_clock

FENCED_AGAIN = 5
"""Times in a row that a shard may be lost to a scheduler the group does not know before this process gives up."""
PAUSE_S = 0.2
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Desk:
    """What the shards of a process share."""

    process: Process
    policies: Policies
    catalog: Catalog
    producer: Producer
    journal: Producer
    """A connection of its own, whose records wait for no others."""
    blobs: Blobs
    ownership: Ownership
    beat: Callable[[], None]
    """Tell the process's health that a turn has been completed."""
    ready: Callable[[], None]


async def work(desk: Desk, shard: int, stop: asyncio.Event) -> None:
    """Schedule one shard until `stop`, or until the group has given it away; hands it over in good order.

    Raises:
        Unavailable: the broker fails, or another scheduler keeps writing although this one owns the shard.
    """
    fenced = 0
    while not stop.is_set() and shard in desk.ownership.owned:
        if not await desk.ownership.confirm(shard):
            await _unless(stop, PAUSE_S)
            continue
        began = time.monotonic()
        try:
            await _incarnation(desk, shard, stop)
        except Fenced as error:
            # Ownership moved while we were away: the group will say so; if it does not, somebody works outside it.
            fenced = 1 if time.monotonic() - began > FENCED_AGAIN else fenced + 1
            log.warning("%s", error)
            if fenced >= FENCED_AGAIN:
                raise Unavailable(
                    f"shard {shard} was taken over {fenced} times in a row by a scheduler outside group "
                    f"{desk.process.prefix}scheduler; end it"
                ) from error
            await _unless(stop, PAUSE_S)
        else:
            return


async def _incarnation(desk: Desk, shard: int, stop: asyncio.Event) -> None:
    process = desk.process
    policies = msgspec.structs.replace(desk.policies, shard=shard)
    store = Store(redis_of(process), process.prefix, shard=shard, shards=policies.shards)
    try:
        recovery = await recover(process, policies, store, desk.journal, desk.blobs)
        try:
            turns, reader, projection = await _begin(desk, policies, recovery, store)
        finally:
            await recovery.stop()
        keepers = [
            asyncio.create_task(keeper, name=name)
            for name, keeper in (
                ("snapshots", _durable(desk, policies, turns, projection)),
                ("retention", Retention(process, policies).run()),
            )
            if name != "retention" or shard == 0  # what all shards read, one deletes
        ]
        try:
            await reader.start()
            desk.ready()
            await _turn(desk, shard, turns, stop, keepers)
            await turns.end()
        finally:
            await _cancel(keepers)
            await projection.stop()
            await reader.stop()
    finally:
        await store.close()


async def recover(
    process: Process, policies: Policies, store: Store, journal: Producer, blobs: Blobs
) -> Recovery:
    """The recovered and claimed state, its readers still open.

    Raises:
        Unavailable: the broker fails, or the log does not hold what is needed.
    """
    started = time.monotonic()

    async def projected() -> Mapping[str, bytes]:
        try:
            return await store.load()
        except Unavailable as error:
            log.warning("%s: rebuilding from the log, or from a snapshot in the blob store", error)
            return {}

    gc.disable()  # a million new objects, none of them garbage: looking through them again and again is half the time
    recovery = Recovery(process.kafka, process.prefix, policies)
    try:
        await recovery.start(projected, lambda: newest(process, policies, blobs))
        await recovery.follow()
        await recovery.claim(journal, policies.run)
    except BaseException:
        await recovery.stop()
        raise
    finally:
        gc.enable()
        gc.freeze()
    meta = recovery.state.meta
    if meta.policies != policies.digest():
        log.warning(
            "the cards or the run's settings differ from those this log began with (%s, now %s): tasks go on under the new ones",
            meta.policies,
            policies.digest(),
        )
    log.info(
        "shard %d recovered from %s: seq %d as epoch %d in %.2f s, %d live and %d terminal tasks, %d journal entries folded",
        policies.shard,
        recovery.came_from,
        meta.seq,
        meta.epoch,
        time.monotonic() - started,
        len(recovery.state.live),
        sum(meta.ended.values()),
        recovery.folded,
    )
    return recovery


async def _begin(
    desk: Desk, policies: Policies, recovery: Recovery, store: Store
) -> tuple[Turns, LogReader, Projection]:
    process, state = desk.process, recovery.state
    reader = LogReader(
        process.kafka,
        process.prefix,
        inputs(policies.shards),
        start=state.meta.offsets,
        # What cannot be read becomes a dead letter once, not once for each shard.
        producer=desk.producer if policies.shard == 0 else None,
        wait_ms=FETCH_WAIT_MS,
    )
    projection = Projection(state, store)
    turns = Turns(
        state=state,
        policies=policies,
        catalog=desk.catalog,
        reader=reader,
        producer=desk.producer,
        projection=projection,
        journal=Journal(desk.journal, policies.shard, recovery.position),
        tick_s=process.config.scheduler.tick_s,
        clock=steady_clock(state.meta.now),
    )
    epoch, seq = recovery.last_mark
    again = outbox(
        recovery.last, desk.catalog, shard=policies.shard, sender=state.meta.epoch, epoch=epoch, seq=seq
    )
    if again:
        await desk.producer.emit(*again)
    return turns, reader, projection


async def _turn(
    desk: Desk, shard: int, turns: Turns, stop: asyncio.Event, keepers: Sequence[asyncio.Task[None]]
) -> None:
    """Turn after turn, while the shard is ours. A keeper that failed ends this too: it meets what is expected by itself."""
    ownership = desk.ownership
    worker = desk.process.worker if desk.policies.shards == 1 else f"{desk.process.worker}/{shard}"
    started_at, beat_at = time.time(), float("-inf")
    while not stop.is_set():
        if not ownership.owns(shard):
            await ownership.settled()
            if shard not in ownership.owned:
                return
            continue
        ownership.enter()
        try:
            await turns.turn()
        finally:
            ownership.exit()
        desk.beat()
        if time.monotonic() - beat_at >= HEARTBEAT_S:
            beat_at = time.monotonic()
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
            await turns.heartbeat(worker, os.getpid(), started_at)
        await asyncio.sleep(0)


async def _durable(desk: Desk, policies: Policies, turns: Turns, projection: Projection) -> None:
    durable = Durable(desk.blobs, desk.producer, policies, projection, turns)
    section = desk.process.config.scheduler
    await durable.run(section.snapshot_s, section.snapshots, desk.process.kafka)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    """End helpers; what one of them failed of is told, for nobody else waits for it."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            log.warning("%s", result)


async def _unless(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
