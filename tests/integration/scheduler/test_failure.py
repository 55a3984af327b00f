"""Failure, degradation and bad input through the real log: the scheduler as a process, restarted in between, and replayed."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from schemas.envelope import JSON, encode
from schemas.states import TaskState
from schemas.tasks import Task, TaskCancelled, TaskSubmitted
from services.runtime.producer import Outgoing
from services.runtime.reader import LogReader
from tests.integration.scheduler import process as setting

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
service = setting.service
"""The fixture: a scheduler process over cards of its own."""

JOINED = """
name = "joined"
layer = "tool"
summary = "Say the word, or have it said."
dataset = "words.jsonl"
[verifier]
family = "format"
[ladder]
steps = [{ hint = "{prompt} Please." }, 0.0]
children = 2
join = "all"
climb = false
"""


def test_a_parent_waits_for_its_sub_tasks_through_restarts(
    service: setting.Service, kafka: str, prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "cards" / "joined.toml").write_text(JOINED)

    async def scene(world: setting.World) -> None:
        service.start()
        parent = Task(id="p", domain="joined", prompt="say it", difficulty=0.5)
        await world.submit(parent)
        await world.until(lambda: len(world.assigned) == 1, work=False)
        [first] = world.assigned.values()
        await world.answer(first)
        await world.until(lambda: "p" in world.states and world.states["p"].state == "waiting", work=False)
        assert len(world.states["p"].children) == 1, "the very task with a hint is one sub-task"
        status, found = await asyncio.to_thread(service.ask, "explain", "p")
        assert status == 0, found
        assert "sub-tasks (join all)" in found["waits_for"][0]
        service.end(signal.SIGKILL)
        service.start()
        await world.until(lambda: len(world.assigned) == 2, work=False)
        second = next(each for each in world.assigned.values() if each is not first)
        assert second.task.prompt == "say it Please."
        await world.answer(second)
        await world.until(lambda: world.states["p"].state == "succeeded")

    # The task and its hinted twin fail; what is drawn at difficulty 0 passes, and that ends all above it.
    setting.play(kafka, prefix, lambda task: task.difficulty == 0.0, scene)
    service.end(signal.SIGTERM)
    report = setting.replayed(service)
    assert (report["submitted"], report["live"]) == (4, 0)


def test_a_task_of_a_cancelled_batch_is_repeated_on_demand(
    service: setting.Service, kafka: str, prefix: str
) -> None:
    async def scene(world: setting.World) -> None:
        service.start()
        world.slots = 0
        await world.submit(Task(id="t", domain="echo", prompt="say 1", difficulty=0.5, batch="b"))
        await world.until(lambda: "t" in world.states)
        await world.producer.emit(Outgoing("tasks", TaskCancelled(batch="b"), "echo"))
        await world.until(world.ended(1))
        assert world.states["t"].cause == "cancelled"
        status, found = await asyncio.to_thread(service.ask, "requeue", "t")
        assert status == 0, found
        world.slots = 4
        await world.until(lambda: found["task"] in world.states and world.ended(2)())
        assert world.states[found["task"]].state == "succeeded"
        assert world.states[found["task"]].batch == "b"

    setting.play(kafka, prefix, lambda _: True, scene)


def spoiled(**changes: Any) -> bytes:
    """A submission as a producer of another language might write it, with some fields wrong; None takes one out."""
    event = TaskSubmitted(task=Task(id="x", domain="echo", prompt="p"))
    raw = encode(event, id="i", key="echo", occurred_at=1.0, producer="outside", content_type=JSON)
    document = json.loads(raw)
    for name, value in changes.items():
        place = document["data"] if name == "priority" else document["data"]["task"]
        if value is None:
            del place[name]
        else:
            place[name] = value
    return json.dumps(document).encode()


def test_bad_input_is_told_kept_and_disturbs_nothing(
    service: setting.Service, kafka: str, prefix: str
) -> None:
    dead = [
        spoiled(id=None),
        spoiled(id=""),
        spoiled(priority=-1000),
        spoiled(priority=float("nan")),
        spoiled(priority=float("inf")),
        spoiled(difficulty=float("-inf")),
    ]
    refused = {
        "large": ("too_large", {"prompt": "x" * 900_000}),
        "nowhere": ("unknown_domain", {"domain": "nowhere"}),
        "elsewhere": ("unknown_pool", {"pool": "elsewhere"}),
    }

    async def scene(world: setting.World) -> None:
        service.start()
        for raw in dead:
            await world.producer.send_raw("tasks", raw, b"echo", [])
        for name, (_, fields) in refused.items():
            task = Task(id=name, domain="echo", prompt="p")
            await world.submit(msgspec.structs.replace(task, **fields))
        keyed = [Task(id=name, domain="echo", prompt=name) for name in ("first", "second")]
        for task in keyed:
            event = TaskSubmitted(task=task, idempotency_key="k")
            await world.producer.emit(Outgoing("tasks", event, "echo"))
        await world.producer.emit(Outgoing("tasks", TaskCancelled(task_id="never"), "echo"))
        await world.submit(*setting.tasks(3))
        await world.until(world.ended(8))
        told: dict[str, TaskState] = world.states
        for name, (cause, _) in refused.items():
            assert (told[name].state, told[name].cause) == ("rejected", cause)
        assert (told["first"].state, told["second"].cause) == ("succeeded", "key_reused")
        letters = LogReader(kafka, prefix, ["tasks.dlq"])
        await letters.start()
        try:
            assert sum((await letters.end_offsets()).values()) == len(dead)
        finally:
            await letters.stop()

    setting.play(kafka, prefix, lambda _: True, scene)
    service.end(signal.SIGTERM)
    report = setting.replayed(service)
    assert (report["submitted"], report["live"]) == (8, 0)
