"""Wiring of the scheduler. Invariant: this process works on the shards that are its own, and on nothing else.

Any number of processes may run; each shard is worked on by one of them, and those without one stand by.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from services.runtime import retention
from services.runtime.blobs import Blobs
from services.runtime.catalog import Catalog
from services.runtime.lifecycle import Lifecycle
from services.runtime.producer import Producer
from services.runtime.settings import Process
from services.runtime.topics import TopicError, admin, partition_counts
from services.scheduler.ownership import Ownership
from services.scheduler.policies import Policies, policies_of
from services.scheduler.settings import JOURNAL, PROGRESS_S, inputs, redis_of
from services.scheduler.shard import Desk, work

HANDOVER_S = 15.0
"""Longest that a shard may take to end its turn, its effects and its last write."""


def catalog_of(process: Process) -> Catalog:
    """The domains of the run.

    Raises:
        CatalogError: a card that cannot be used.
    """
    domains = process.config.domains
    return Catalog.load(domains.paths, domains.include, domains.exclude)


def shard_policies(catalog: Catalog, process: Process) -> Policies:
    """The table that all shards share.

    Raises:
        SettingsError: settings that do not fit each other.
    """
    return msgspec.structs.replace(
        policies_of(catalog.cards, process.config), shards=process.config.scheduler.shards
    )


async def run(process: Process, lifecycle: Lifecycle) -> None:
    """Schedule until told to stop.

    Raises:
        BadInput: settings or cards that cannot be used.
        Unavailable: the broker fails, or the log is not as it must be.
    """
    catalog = catalog_of(process)
    policies = shard_policies(catalog, process)
    redis_of(process)
    await check(process, policies.shards)
    producer = Producer(process.kafka, process.prefix, process.worker)
    journal = Producer(process.kafka, process.prefix, process.worker, linger_ms=0)
    ownership = Ownership(
        process.kafka, process.prefix, process.worker, session_s=process.config.scheduler.ownership_s
    )
    desk = Desk(
        process=process,
        policies=policies,
        catalog=catalog,
        producer=producer,
        journal=journal,
        blobs=Blobs(process.blobs),
        ownership=ownership,
        beat=lambda: lifecycle.progress.beat("turn", deadline_s=PROGRESS_S),
        ready=lifecycle.progress.ready,
    )
    lifecycle.progress.beat("turn", deadline_s=PROGRESS_S * 10)  # recovery of a long log takes its time
    try:
        await producer.start()
        await journal.start()
        await ownership.join()
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(ownership.keep(), name="membership")
            await _share(desk, lifecycle, tasks)
            keeping.cancel()
    finally:
        await ownership.leave()
        await journal.stop()
        await producer.stop()


async def check(process: Process, shards: int) -> None:
    """Refuse topics that do not fit.

    Raises:
        TopicError: one is missing, has too few partitions, or the broker deletes what the scheduler needs.
        Unavailable: no broker answers.
    """
    from schemas.topics import all_topics

    read = {*inputs(shards), JOURNAL}
    # Their dead letters, too: without a place for these, the first record that cannot be read would end the scheduler.
    names = read | {f"{name}.dlq" for name in read}
    wanted = {
        process.prefix + topic.name: topic for topic in all_topics(shards=shards) if topic.name in names
    }
    declared = {name: topic for name, topic in wanted.items() if topic.name in read}
    counts = await partition_counts(process.kafka, wanted)
    have = counts[process.prefix + JOURNAL]
    if have < shards:
        raise TopicError(
            f"topic {process.prefix}{JOURNAL} has {have} partitions, scheduler.shards is {shards}; make the topics with "
            f"`temper topics create --shards {shards}` before anything is written, or add partitions to it"
        )
    for name, topic in sorted(declared.items()):
        if counts[name] < topic.partitions:
            raise TopicError(
                f"topic {name} has {counts[name]} partitions, {topic.partitions} are declared; add partitions to it while no "
                "service runs, or use another TEMPER_PREFIX"
            )
    async with admin(process.kafka) as client:
        for line in await retention.unguarded(client, declared):
            raise TopicError(line)


async def _share(desk: Desk, lifecycle: Lifecycle, tasks: asyncio.TaskGroup) -> None:
    """Work on what is owned, as it comes and goes, until told to stop."""
    working: dict[int, asyncio.Task[None]] = {}
    ownership = desk.ownership
    stopping = tasks.create_task(lifecycle.stop.wait(), name="stop")
    while not lifecycle.stop.is_set():
        ownership.changed.clear()
        for shard in sorted(ownership.owned):
            if shard < desk.policies.shards and (shard not in working or working[shard].done()):
                working[shard] = tasks.create_task(work(desk, shard, lifecycle.stop), name=f"shard-{shard}")
        if not working or all(task.done() for task in working.values()):
            lifecycle.progress.forget("turn")  # standing by
            lifecycle.progress.ready()
        changed = tasks.create_task(ownership.changed.wait(), name="changes")
        running = [task for task in working.values() if not task.done()]
        await asyncio.wait({changed, stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
    stopping.cancel()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*working.values(), return_exceptions=True), HANDOVER_S)
