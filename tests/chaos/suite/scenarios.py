"""What is done to an installation. Invariant: every choice follows from the seed; every step waits for something to happen."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import msgspec
import redis.asyncio

from schemas.tasks import DomainPaused, DomainResumed, QuotaChanged, TaskCancelled
from services.runtime.faults import POINTS
from services.runtime.producer import Outgoing
from services.runtime.stack.kafka import KafkaServer
from services.runtime.stack.redis import RedisServer
from services.scheduler.settings import redis_key
from tests.chaos.suite import log as logs
from tests.chaos.suite.run import BROKER, Scenario, settle
from tests.chaos.suite.site import Layout, Site, open_site
from tests.chaos.suite.trees import hostile, readable
from tests.chaos.suite.worker import Manner

KILLED = -signal.SIGKILL
BROKER_KILLED = 128 + signal.SIGKILL
"""As its keeper says it."""
LONG = os.environ.get("TEMPER_CHAOS") == "long"
OWN = 4
"""Slots that each domain of the quota scenario owns."""
DAYS_30 = 30 * 86_400
CALM = Manner(fails=0.1, broken=0.0, silent=0.0, late=0.0, twice=0.0)
"""A worker whose attempts are lost only if something else goes wrong."""


def _more(count: int) -> int:
    """Tasks of a step: the long form has four times as many."""
    return count * (4 if LONG else 1)


async def scheduler_killed(site: Site, seed: int) -> dict[str, float]:
    """The scheduler dies at each of its named points, the next one takes over."""
    rng = random.Random(seed)
    # The one of removing old snapshots comes after a grace of minutes; tests/unit/scheduler/test_cellar.py kills there.
    points = [
        point for point in POINTS if point.startswith("scheduler:") and point != "scheduler:before-tidy"
    ]
    rng.shuffle(points)
    site.worker("worker-0")
    site.worker("worker-1")
    for point in points:
        child = site.scheduler(TEMPER_FAULT=f"{point}:{rng.randint(2, 9)}")
        await site.submit(*site.tasks(_more(20)))
        status = await child.ended(60.0)
        if status != KILLED:
            raise AssertionError(f"{point}: the scheduler ended with status {status}: {child.said()[-2000:]}")
    site.scheduler()
    return {"kills": float(len(points))}


async def workers_killed(site: Site, seed: int) -> dict[str, float]:
    """Workers die at any time and before they commit; their leases run out and others take the work."""
    rng = random.Random(seed)
    names = ["worker-0", "worker-1", "worker-2"]
    site.scheduler()
    for name in names:
        site.worker(name)
    await site.submit(*site.tasks(_more(90)))
    kills = 0
    for round_ in range(5):
        await site.progress(8)
        name = rng.choice(names)
        if await site.kill(name) == KILLED:
            kills += 1
        point = "" if round_ % 2 else f"consumer:before-commit:{rng.randint(1, 4)}"
        site.keep("tests.chaos.suite.worker", name, TEMPER_FAULT=point)
        await site.submit(*site.tasks(_more(15)))
    return {"kills": float(kills)}


async def broker_killed(site: Site, seed: int) -> dict[str, float]:
    """The broker dies by SIGKILL in the middle of work and comes back on the same data and port."""
    rng = random.Random(seed)
    if site.broker is None:
        raise AssertionError("this scenario needs a broker of its own")
    site.keep("services.scheduler", "scheduler")
    for name in ("worker-0", "worker-1"):
        site.keep("tests.chaos.suite.worker", name)
    away = 0.0
    kills = 2 if LONG else 1
    for _ in range(kills):
        await site.submit(*site.tasks(_more(60)))
        await site.progress(rng.randint(5, 25))
        began = time.monotonic()
        port = int(site.broker.bootstrap.rpartition(":")[2])
        site.broker.process.signal(signal.SIGKILL)
        if (status := await asyncio.to_thread(site.broker.process.wait, 30.0)) != BROKER_KILLED:
            raise AssertionError(f"the broker ended with status {status}, it was to be killed")
        site.broker = await asyncio.to_thread(KafkaServer.start, site.folder.parent, port=port, config=BROKER)
        away += time.monotonic() - began
    return {"kills": float(kills), "away_s": away}


async def redis_lost(site: Site, seed: int) -> dict[str, float]:
    """Redis is flushed, killed with its data kept, and killed with its data gone; the log is the truth."""
    rng = random.Random(seed)
    if site.redis_server is None:
        raise AssertionError("this scenario needs a Redis of its own")
    site.scheduler()
    site.worker("worker-0")
    steps = ["flush", "kill", "empty", "flush while down"]
    rng.shuffle(steps)
    for step in steps:
        await site.submit(*site.tasks(_more(25)))
        await site.progress(6)
        client = redis.asyncio.Redis.from_url(site.redis)
        if step == "flush":
            await client.flushall()
        elif step == "flush while down":
            await site.kill("scheduler")
            await client.flushall()
            site.scheduler()
        else:
            site.redis_server.process.signal(signal.SIGKILL)
            await asyncio.to_thread(site.redis_server.process.wait, 30.0)
            port = int(site.redis.rpartition(":")[2].partition("/")[0])
            folder = site.folder.parent
            if step == "empty":
                (folder / "redis").rename(folder / f"redis-before-{time.monotonic_ns()}")
            site.redis_server = await asyncio.to_thread(RedisServer.start, folder, port=port)
        await client.aclose()
    # The projection is completed when Redis is back: that is looked at while the scheduler still runs.
    client = redis.asyncio.Redis.from_url(site.redis)
    try:
        async with asyncio.timeout(40.0):
            while not await client.exists(redis_key(site.prefix)):  # noqa: ASYNC110 (Redis tells nobody)
                await asyncio.sleep(0.05)
    finally:
        await client.aclose()
    return {"losses_of_redis": float(len(steps))}


async def rebalance(site: Site, seed: int) -> dict[str, float]:
    """Workers join and leave all the time, so that the partitions of the work never rest."""
    rng = random.Random(seed)
    site.scheduler()
    for name in ("worker-0", "worker-1"):
        site.worker(name)
    await site.submit(*site.tasks(_more(120)))
    moves = 0
    present = {"worker-0", "worker-1"}
    while moves < 6:
        await site.progress(5)
        if site.all_ended():
            await site.submit(*site.tasks(_more(20)))
        if len(present) > 1 and rng.random() < 0.5:
            name = rng.choice(sorted(present))
            present.discard(name)
            number = rng.choice([signal.SIGTERM, signal.SIGKILL])
            await site.kill(name, number)
        else:
            name = f"worker-{moves + 2}"
            present.add(name)
            site.worker(name)
        moves += 1
    return {"moves": float(moves)}


async def sigterm(site: Site, seed: int) -> dict[str, float]:
    """Everything is told to stop under load, again and again: nothing is lost and no attempt is charged."""
    rng = random.Random(seed)
    names = ["worker-0", "worker-1"]

    def start(name: str) -> None:
        if name == "scheduler":
            site.scheduler()
        else:  # too short a drain for the longer attempts: those are given back
            site.worker(name, TEMPER_DRAIN_S="2")

    for name in (*names, "scheduler"):
        start(name)
    await site.submit(*site.tasks(_more(150)))
    slowest = 0.0
    for _ in range(3):
        await site.progress(10)
        for name in rng.sample([*names, "scheduler"], 3):
            began = time.monotonic()
            child = site.children[name]
            status = await site.kill(name, signal.SIGTERM)
            slowest = max(slowest, time.monotonic() - began)
            if status != 0 and (status != -signal.SIGTERM or child.said()):  # told to before it began to work
                raise AssertionError(f"{name} ended with status {status}: {child.said()[-1500:]}")
            # At once and under the same name, as an orchestrator does.
            start(name)
        await site.submit(*site.tasks(_more(30)))
    await site.until("every task ended", site.all_ended, 90.0)
    charged = {name: state for name, state in site.states.items() if state.losses}
    if charged:
        name, state = min(charged.items())
        raise AssertionError(
            f"{len(charged)} tasks paid for a drain, e.g. {name}: {state.losses} losses, {state.reason}"
        )
    return {"stops": 9.0, "slowest_stop_s": slowest}


async def blocked(site: Site, seed: int) -> dict[str, float]:
    """Processes stand still for longer than leases last (as with a blocked event loop), and go on as if nothing had been."""
    rng = random.Random(seed)
    site.keep("services.scheduler", "scheduler")
    names = ["worker-0", "worker-1"]
    for name in names:
        site.keep("tests.chaos.suite.worker", name)
    await site.submit(*site.tasks(_more(80)))
    for victim in (rng.choice(names), "scheduler"):
        await site.progress(8)
        child = site.children[victim]
        child.signal(signal.SIGSTOP)
        await site.submit(*site.tasks(_more(10)))
        await asyncio.sleep(60.0 if LONG else 3.2 * site.layout.lease_s)  # how long it stands still
        if (found := _phase(child.process.pid)) != "T":
            raise AssertionError(f"{victim} did not stand still: state {found}")
        child.signal(signal.SIGCONT)
        await site.submit(*site.tasks(_more(10)))
    return {"stops": 2.0}


async def clock_jumps(site: Site, seed: int) -> dict[str, float]:
    """The wall clock of scheduler and workers is wrong by 30 days, from the start on or in the middle, in both directions."""
    rng = random.Random(seed)
    signs = [1, -1]
    rng.shuffle(signs)
    site.scheduler()
    site.keep("tests.chaos.suite.worker", "worker-0")
    await site.submit(*site.tasks(_more(20)))
    for sign in signs:
        await site.progress(5)
        await site.kill("scheduler")
        site.keep(
            "services.scheduler",
            "scheduler",
            TEMPER_FAULT_CLOCK=f"{sign * DAYS_30}@{rng.choice([0, 2])}",
        )
        await site.submit(*site.tasks(_more(20)))
        await site.until(f"every task ended with the clock {sign * 30:+d} days off", site.all_ended, 60.0)
        await site.submit(*site.tasks(_more(15)))
        await site.kill("scheduler")
        site.scheduler()  # and right again
        await site.until("every task ended with the clock right again", site.all_ended, 60.0)
        await site.submit(*site.tasks(_more(10)))
    await site.kill("worker-0")
    site.worker("worker-0", TEMPER_FAULT_CLOCK=f"{signs[0] * DAYS_30}")
    await site.submit(*site.tasks(_more(10)))
    return {"jumps": 3.0}


async def two_schedulers(site: Site, seed: int) -> dict[str, float]:
    """The scheduler that owns the log stands still at a named point; another takes over; the first wakes up and is ignored."""
    rng = random.Random(seed)
    site.worker("worker-0")
    site.worker("worker-1")
    slowest = 0.0
    points = ["before-journal", "after-journal", "before-effects", "after-effects", "before-redis"]
    rng.shuffle(points)
    points = points[: 5 if LONG else 3]
    for turn, point in enumerate(points):
        zombie, heir = f"scheduler-{turn}a", f"scheduler-{turn}b"
        site.keep("services.scheduler", zombie, TEMPER_FAULT=f"scheduler:{point}:{rng.randint(3, 9)}:stop")
        await site.submit(*site.tasks(_more(30)))
        await _marked(site, f"scheduler_{point}", 60.0)
        # It stands still now.
        site.keep("services.scheduler", heir)
        began = time.monotonic()
        await site.submit(*site.tasks(_more(20)))
        await site.progress(8, "another scheduler took over")
        slowest = max(slowest, time.monotonic() - began)
        site.children[zombie].signal(signal.SIGCONT)
        await site.submit(*site.tasks(_more(10)))
        await site.until("every task ended", site.all_ended)
        if turn + 1 < len(points):
            await asyncio.gather(site.kill(zombie), site.kill(heir))
    return {"takeovers": float(len(points)), "slowest_takeover_s": slowest}


async def _marked(site: Site, prefix: str, within_s: float) -> Path:
    """Wait until a fault has left its mark."""
    found: list[Path] = []

    def there() -> bool:
        found[:] = list(site.folder.glob(f"{prefix}_*"))
        return bool(found)

    await site.until(f"fault {prefix}", there, within_s)
    return found[0]


async def hostile_input(site: Site, seed: int) -> dict[str, float]:
    """Garbage, strangers, duplicates and late events on every input, between the work."""
    rng = random.Random(seed)
    site.scheduler()
    site.worker("worker-0")
    tasks = site.tasks(_more(60))
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
    await site.until("every task ended", site.all_ended, 90.0)
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
    first = _layout(SLOW, domains=site.layout.domains)
    async with open_site(
        site.folder / "first", site.kafka, site.redis, f"{site.prefix}first.", first
    ) as other:
        other.scheduler()
        other.worker("worker-0")
        await other.submit(*other.tasks(_more(40), "d"))
        await settle(other)
        log = await logs.read(other.kafka, other.prefix)
    recorded = [record for topic in ("tasks", "rewards", "heartbeats") for record in log.of(topic)]
    again = [*recorded, *rng.sample(recorded, len(recorded) // 3)]
    rng.shuffle(again)
    site.scheduler()
    await site.submit(*site.tasks(_more(30)))
    for start in range(0, len(again), 60):
        events = [
            Outgoing(record.topic, record.event, record.key, id=record.envelope.id)
            for record in again[start : start + 60]
        ]
        await site.producer.emit(*events)
        if start == 60 * (len(again) // 120):
            site.worker("worker-0")
    site.submitted |= other.submitted
    return {"replayed_records": float(len(again))}


async def quotas(site: Site, seed: int) -> dict[str, float]:
    """A domain borrows what its cohort does not use, gives it back when the owner comes, and quotas change meanwhile."""
    rng = random.Random(seed)
    site.scheduler()
    site.worker("worker-0")
    site.worker("worker-1")
    most = 0
    # One domain alone: it borrows.
    await site.submit(*(site.of("echo", _more(60))))
    await site.until("echo borrows", lambda: site.holding("echo") > OWN)
    most = max(most, site.holding("echo"))
    # The owner comes: what was borrowed is given back as leases end.
    await site.submit(*(site.of("song", _more(60))))
    back = await site.until("song has its own again", lambda: site.holding("song") >= OWN)
    for _ in range(4):
        nominal = rng.randint(1, OWN + 2)
        await site.say("tasks", QuotaChanged(domain=rng.choice(["echo", "song"]), nominal=nominal), "echo")
        await site.progress(6)
    name = rng.choice(["echo", "song"])
    await site.say("tasks", DomainPaused(domain=name), name)
    await site.submit(*(site.of(name, 10)))
    other = "song" if name == "echo" else "echo"
    await site.submit(*(site.of(other, 10)))
    await site.until(f"{other} ends while {name} is paused", lambda: site.ended_in(other), 60.0)
    await site.say("tasks", DomainResumed(domain=name), name)
    return {"most_borrowed": float(most - OWN), "given_back_after_s": back}


async def shards(site: Site, seed: int) -> dict[str, float]:
    """Two shards, three schedulers: owners die and are told to stop; the others take over, credits hold across them."""
    rng = random.Random(seed)
    names = ["scheduler-0", "scheduler-1", "scheduler-2"]
    for name in names:
        site.keep("services.scheduler", name)
    for name in ("worker-0", "worker-1"):
        site.worker(name)
    await site.submit(*site.tasks(_more(80)))
    kills = 4 if LONG else 2
    for turn in range(kills):
        await site.progress(8)
        name = rng.choice(names)
        await site.kill(name, signal.SIGKILL if turn % 2 == 0 else signal.SIGTERM)
        await site.submit(*site.tasks(_more(20)))
        await site.progress(8, "the others took over")
        site.keep("services.scheduler", name)
    return {"kills": float(kills)}


async def idle(site: Site, seed: int) -> dict[str, float]:
    """Nothing to do for a long time: no memory grows."""
    lasts_s = float(os.environ.get("TEMPER_CHAOS_SOAK_S", "3600" if LONG else "8"))
    site.scheduler()
    site.worker("worker-0")
    await site.submit(*site.tasks(_more(30)))
    await site.until("every task ended", site.all_ended)
    await asyncio.sleep(4.0)  # caches and pools fill
    samples: list[tuple[float, float]] = []
    began = time.monotonic()
    while time.monotonic() - began < lasts_s:
        samples.append((time.monotonic() - began, _rss_mib(site.children["scheduler"].process.pid)))
        await asyncio.sleep(min(1.0, lasts_s / 12.0))  # the time that is being looked at
    half = len(samples) // 2
    before = max(value for _, value in samples[: max(1, half)])
    after = max(value for _, value in samples[half:])
    if after > before + 4.0 + 0.02 * before:
        raise AssertionError(f"the idle scheduler grew from {before:.1f} to {after:.1f} MiB in {lasts_s:g} s")
    return {"rss_mib": after, "growth_mib": after - before, "idle_s": lasts_s}


def _phase(pid: int) -> str:
    """State of a process, as the kernel calls it; T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) / 1024.0
    raise AssertionError(f"process {pid} has no memory")


def _layout(manner: Manner, **fields: object) -> Layout:
    layout = Layout(manner=manner)
    for name, value in fields.items():
        setattr(layout, name, value)
    return layout


SLOW = msgspec.structs.replace(Manner(), slots=6, shortest_s=0.05, longest_s=0.3)
SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="scheduler-killed",
        about="kill -9 of the scheduler before and after journal, effects and Redis",
        play=scheduler_killed,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="workers-killed",
        about="kill -9 of workers at any time and before a commit",
        play=workers_killed,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="broker-killed",
        about="kill -9 of the broker, back on the same data and port",
        play=broker_killed,
        layout=lambda _: _layout(SLOW),
        own_servers=True,
    ),
    Scenario(
        name="redis-lost",
        about="Redis flushed, killed, and back empty",
        play=redis_lost,
        layout=lambda _: _layout(SLOW),
        own_servers=True,
    ),
    Scenario(
        name="rebalance",
        about="workers join and leave during work",
        play=rebalance,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="sigterm",
        about="SIGTERM of everything under load: nothing lost, nothing charged",
        play=sigterm,
        layout=lambda _: _layout(
            msgspec.structs.replace(CALM, slots=8, shortest_s=0.1, longest_s=1.2), lease_s=6.0, verify_s=20.0
        ),
    ),
    Scenario(
        name="blocked",
        about="processes stopped for longer than their leases last",
        play=blocked,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="clock-jumps",
        about="wall clocks 30 days off, both ways",
        play=clock_jumps,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="two-schedulers",
        about="the owner of the log is stopped, replaced, and wakes up again",
        play=two_schedulers,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="hostile-input",
        about="garbage, duplicates, strangers and late events on every input",
        play=hostile_input,
        layout=lambda _: _layout(msgspec.structs.replace(Manner(), slots=6, late=0.1, twice=0.5)),
    ),
    Scenario(
        name="disorder",
        about="a recorded log written again in other orders, with doubles",
        play=disorder,
        layout=lambda _: _layout(SLOW),
    ),
    Scenario(
        name="quotas",
        about="lend, borrow, reclaim, pause and changes of quotas in a cohort",
        play=quotas,
        layout=lambda _: _layout(
            msgspec.structs.replace(CALM, slots=8, shortest_s=0.15, longest_s=0.4),
            cards=dict.fromkeys(("echo", "song"), f'[quota]\nnominal = {OWN}\ncohort = "voices"'),
        ),
    ),
    Scenario(
        name="shards",
        about="two shards, three schedulers: owners die or stop, the others take over",
        play=shards,
        layout=lambda _: _layout(
            SLOW,
            scheduler={"shards": 2},
            domains={"alto": 1.0, "bass": 2.0, "echo": 1.0, "song": 2.0, "tenor": 1.0},
        ),
    ),
    Scenario(
        name="idle",
        about="an idle installation with flat memory",
        play=idle,
        layout=lambda _: _layout(CALM),
        seeds=1,
    ),
)
