"""The scheduler as a process on a real broker and Redis, with samplers and verifiers played by the test."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest
import redis as redis_client

from schemas.journal import BatchFolded
from schemas.tasks import Task, TaskCancelled
from services.runtime.producer import Outgoing, Producer
from services.runtime.reader import LogReader
from services.scheduler.journal import moved, outgoing
from services.scheduler.policies import Policies
from services.scheduler.recovery import Recovery
from services.scheduler.settings import INPUTS, redis_key
from services.scheduler.snapshot import snapshot
from services.scheduler.store import Fenced, Store
from tests.integration.scheduler.process import Service, World, play, replayed, service, tasks

__all__ = ["service"]

pytestmark = pytest.mark.integration


def task_fields(stored: dict[Any, Any]) -> dict[bytes, bytes]:
    return {name: value for name, value in stored.items() if name.startswith(b"task:")}


def test_tasks_are_assigned_on_credits_degraded_and_explained(
    service: Service, kafka: str, prefix: str
) -> None:
    async def scene(world: World) -> None:
        await world.submit(*tasks(6))
        await world.submit(Task(id="lost", domain="nowhere", prompt="?"))
        service.start()
        world.slots = 0
        await world.until(lambda: len(world.states) == 7)
        assert world.assigned == {}
        status, found = await asyncio.to_thread(service.ask, "explain", "t0")
        assert status == 0, found
        assert (found["state"], len(found["waits_for"])) == ("ready", 1)
        status, found = await asyncio.to_thread(service.ask, "pause", "nowhere")
        assert (status, "unknown domain" in found) == (2, True)
        world.slots = 4
        # Every task at difficulty 0.5 fails and is replaced by one at 0.
        await world.until(world.ended(13))
        await world.beat()

    play(kafka, prefix, lambda task: task.difficulty == 0.0, scene)
    assert service.end(signal.SIGTERM) == 0
    report = replayed(service)
    # A domain that has recovered is tried at its own difficulty again: there may be more tasks than these.
    assert report["submitted"] == report["terminal"] + report["live"] >= 13
    _, found = service.ask("ps")
    assert found["domains"]["echo"]["states"]["succeeded"] >= 6


def test_kill_and_flush_lose_nothing(service: Service, kafka: str, redis_url: str, prefix: str) -> None:
    client = redis_client.Redis.from_url(redis_url)

    async def scene(world: World) -> None:
        service.start()
        await world.submit(*tasks(20))
        await world.until(world.ended(5))
        service.end(signal.SIGKILL)
        await world.submit(*tasks(20, 20))
        service.start()
        await world.until(world.ended(15))
        service.end(signal.SIGKILL)
        client.delete(redis_key(prefix))
        service.start()
        await world.until(world.ended(25))
        client.delete(redis_key(prefix))  # while it runs
        await world.until(world.ended(40))
        await world.beat()

    play(kafka, prefix, lambda _: True, scene)
    assert service.end(signal.SIGTERM) == 0
    report = replayed(service)
    assert (report["submitted"], report["terminal"], report["live"]) == (40, 40, 0)
    _, found = service.ask("ps")
    assert found["domains"]["echo"]["states"] == {"succeeded": 40}
    assert found["leases"] == []
    before = client.hgetall(redis_key(prefix))
    assert isinstance(before, dict)
    client.delete(redis_key(prefix))
    service.start()
    ends = time.monotonic() + 30
    while not client.exists(redis_key(prefix)):
        assert time.monotonic() < ends
        time.sleep(0.05)
    service.end(signal.SIGKILL)
    after = client.hgetall(redis_key(prefix))
    assert isinstance(after, dict)
    assert task_fields(before) == task_fields(after)
    client.close()


def test_a_lease_that_nobody_renews_is_given_out_again(service: Service, kafka: str, prefix: str) -> None:
    async def scene(world: World) -> None:
        service.start()
        await world.submit(*tasks(1))
        await world.until(lambda: len(world.assigned) == 1, work=False)
        await world.until(lambda: len(world.assigned) == 2, work=False)
        first, second = world.assigned.values()
        assert (first.attempt, second.attempt) == (1, 2)
        await world.answer(first)
        await world.answer(second)
        await world.until(world.ended(1))
        assert world.states["t0"].losses == 0  # no worker ever had it: half a loss, which no budget pays for

    play(kafka, prefix, lambda _: True, scene)


def test_death_between_journal_and_effects_loses_no_assignment(
    service: Service, kafka: str, prefix: str
) -> None:
    async def scene(world: World) -> None:
        await world.submit(*tasks(3))
        await world.beat()
        inputs = LogReader(kafka, prefix, INPUTS)
        await inputs.start()
        before = dict.fromkeys(inputs.positions(), 0)
        while not await inputs.caught_up():
            await inputs.poll(0.2)
        dead = Recovery(kafka, prefix, Policies(run="r"))
        await dead.start()
        await dead.claim(world.producer, "r")
        ranges = moved(before, inputs.positions())
        await world.producer.emit(
            outgoing(BatchFolded(run="r", seq=2, epoch=1, now=time.time(), ranges=ranges))
        )
        await dead.stop()
        await inputs.stop()
        service.start()
        # The lease lasts 3 s: what is assigned at attempt 1 was assigned by the entry of the dead scheduler.
        await world.until(world.ended(3))
        assert [assigned.attempt for assigned in world.assigned.values()] == [1, 1, 1]

    play(kafka, prefix, lambda _: True, scene)
    service.end(signal.SIGTERM)
    assert replayed(service)["submitted"] == 3


def test_requeue_submits_an_ended_task_again(service: Service, kafka: str, prefix: str) -> None:
    async def scene(world: World) -> None:
        service.start()
        world.slots = 0
        await world.submit(*tasks(1))
        await world.until(lambda: "t0" in world.states)
        status, _ = await asyncio.to_thread(service.ask, "requeue", "t0")
        assert status == 1, "it is not ended"
        await world.producer.emit(Outgoing("tasks", TaskCancelled(task_id="t0"), "echo"))
        await world.until(world.ended(1))
        status, found = await asyncio.to_thread(service.ask, "requeue", "t0")
        assert status == 0, found
        world.slots = 4
        await world.until(lambda: found["task"] in world.states and world.ended(2)())
        assert world.states[found["task"]].state == "succeeded"

    play(kafka, prefix, lambda _: True, scene)


def test_garbage_on_the_tasks_topic_disturbs_nothing(service: Service, kafka: str, prefix: str) -> None:
    async def scene(world: World) -> None:
        service.start()
        await world.producer.send_raw("tasks", b"\xff\xfe not an event", b"k", [])
        await world.submit(*tasks(2))
        await world.until(world.ended(2))

    play(kafka, prefix, lambda _: True, scene)
    service.end(signal.SIGTERM)
    assert replayed(service)["submitted"] == 2


def test_the_older_of_two_schedulers_is_fenced(
    service: Service, kafka: str, redis_url: str, prefix: str
) -> None:
    async def scenario() -> None:
        producer = Producer(kafka, prefix, "p")
        await producer.start()
        stores = [Store(redis_url, prefix) for _ in range(2)]
        recoveries = [Recovery(kafka, prefix, Policies(run="r")) for _ in range(2)]
        try:
            for recovery in recoveries:
                await recovery.start()
                await recovery.follow()
            await asyncio.gather(*(recovery.claim(producer, "r") for recovery in recoveries))
            epochs = [recovery.state.meta.epoch for recovery in recoveries]
            assert len(set(epochs)) == 2, "two claims at once must not both win"
            for number in sorted(range(2), key=lambda index: -epochs[index]):
                state = recoveries[number].state
                saving = stores[number].adopt(snapshot(state), epoch=epochs[number], seq=1, journal=0)
                if epochs[number] == max(epochs):
                    await saving
                else:
                    with pytest.raises(Fenced, match="newer scheduler"):
                        await saving
        finally:
            for recovery, store in zip(recoveries, stores, strict=True):
                await recovery.stop()
                await store.close()
            await producer.stop()

    asyncio.run(scenario())


def test_redis_that_is_away_does_not_stop_the_log(service: Service, kafka: str, prefix: str) -> None:
    service.environment["TEMPER_REDIS"] = "redis://127.0.0.1:1/0"

    async def scene(world: World) -> None:
        service.start()
        await world.submit(*tasks(2))
        await world.until(world.ended(2))

    play(kafka, prefix, lambda _: True, scene)
    service.end(signal.SIGTERM)
    assert "rebuilding from the log" in service.log.read_text()
    status, said = service.ask("ps")
    assert (status, "Redis cannot be read" in said) == (3, True)


def test_no_broker_is_one_line_and_status_3(service: Service) -> None:
    service.environment["TEMPER_KAFKA"] = "127.0.0.1:1"
    service.start()
    assert service.process is not None
    assert service.process.wait(60) == 3
    lines = [line for line in service.log.read_text().splitlines() if "no Kafka broker answers" in line]
    assert len(lines) == 1
