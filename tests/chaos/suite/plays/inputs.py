"""Inputs that cannot be meant, and inputs in another order than they were written in."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from schemas.tasks import TaskCancelled
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from tests.chaos.suite import log as logs
from tests.chaos.suite.log import Log
from tests.chaos.suite.plays.common import LONG, SLOW, layout_of, more
from tests.chaos.suite.run import settle
from tests.chaos.suite.site import Site, open_site
from tests.chaos.suite.trees import hostile, readable


async def hostile_input(site: Site, seed: int) -> dict[str, float]:
    """Garbage, strangers, duplicates and late events on every input, between the work."""
    rng = random.Random(seed)
    site.scheduler()
    site.worker("worker-0")
    tasks = site.tasks(more(60))
    await site.submit(*tasks)
    sent: Counter[str] = Counter()
    unreadable: Counter[str] = Counter()
    cancelled = set()
    for _ in range(10):
        await site.progress(3)
        for topic in ("tasks", "rewards", "heartbeats", "checkpoints") * (4 if LONG else 2):
            data = hostile(rng, topic)
            await site.producer.send_raw(topic, data, b"k%d" % rng.randint(0, 99), [])
            sent[topic] += 1
            unreadable[topic] += not readable(data)
        again = rng.sample(tasks, 8)
        await site.submit(*again)
        victim = rng.choice(tasks)
        if rng.random() < 0.3:
            cancelled.add(victim.id)
            await site.say("tasks", TaskCancelled(task_id=victim.id, reason="by chance"), victim.domain)
        await site.say("tasks", TaskCancelled(task_id=f"never-{rng.randint(0, 9)}"), "echo")
    await site.until("every task ended", site.all_ended)
    await site.all_read()
    await site.dead_letters(unreadable)
    disturbed = [
        task.id
        for task in tasks
        if task.id not in cancelled and site.states[task.id].state not in ("succeeded", "failed", "degraded")
    ]
    if disturbed:
        raise AssertionError(f"{len(disturbed)} tasks were disturbed, e.g. {site.states[disturbed[0]]}")
    return {"garbage": float(sent.total()), "dead_letters": float(unreadable.total())}


async def disorder(site: Site, seed: int) -> dict[str, float]:
    """What another installation's log holds is written here in other orders, with doubles, while the work goes on."""
    rng = random.Random(seed)
    first = layout_of(SLOW, domains=site.layout.domains)
    async with open_site(
        site.folder / "first", site.kafka, site.redis, f"{site.prefix}first.", first
    ) as other:
        other.scheduler()
        other.worker("worker-0")
        await other.submit(*other.tasks(more(40), "d"))
        await settle(other)
        log = await logs.read(other.kafka, other.prefix)
    recorded = [record for topic in ("tasks", "rewards", "heartbeats") for record in log.of(topic)]
    again = [*recorded, *rng.sample(recorded, len(recorded) // 3)]
    rng.shuffle(again)
    site.scheduler()
    await site.submit(*site.tasks(more(30)))
    for start in range(0, len(again), 60):
        events = [
            Outgoing(record.topic, record.event, record.key, id=record.envelope.id)
            for record in again[start : start + 60]
        ]
        await site.producer.emit(*events)
        if start == 60 * (len(again) // 120):
            site.worker("worker-0")
    site.submitted |= other.submitted
    came = arrivals(recorded, await logs.read(site.kafka, site.prefix))
    if came.records < len(again):
        raise AssertionError(f"{came.records} of {len(again)} records that were written again lie in the log")
    return {
        "replayed_records": float(came.records),
        "out_of_order": float(came.turned),
        "doubled": float(came.doubled),
    }


class Arrivals(NamedTuple):
    """How recorded records lie in another log."""

    records: int
    turned: int
    """Those that follow there on one that came later in the first."""
    doubled: int
    """Second and further copies."""


def arrivals(recorded: Sequence[Record], log: Log) -> Arrivals:
    """Look for what was recorded in another log."""
    order = {(record.topic, record.envelope.id): number for number, record in enumerate(recorded)}
    records = turned = doubled = 0
    for (topic, _), part in sorted(log.parts.items()):
        last, known = -1, set()
        for record in part:
            name = record.envelope.id
            at = order.get((topic, name))
            if at is None:
                continue
            records += 1
            if name in known:
                doubled += 1
                continue
            known.add(name)
            turned += at < last
            last = at
    return Arrivals(records, turned, doubled)
