"""The live view's fold and drawing."""

from __future__ import annotations

import io

from rich.console import Console

from schemas.checkpoints import CheckpointPublished
from schemas.heartbeats import WorkerHeartbeat
from schemas.run import RunConfig
from schemas.states import TaskState
from schemas.tasks import PolicyRef
from services.console.live import render, smooth, spark
from services.console.view import View, observe


def state(task: str, name: str, losses: int = 0) -> TaskState:
    return TaskState(task_id=task, domain="a.b", purpose="train", state=name, losses=losses)  # type: ignore[arg-type]


def test_live_tasks_are_counted_by_their_newest_state_and_ended_ones_once() -> None:
    view = View()
    for event in (state("a", "ready"), state("b", "ready"), state("a", "running"), state("b", "succeeded")):
        observe(view, event, 1.0)
    assert view.live() == {"running": 1}
    assert view.ended == {"succeeded": 1}


def test_a_training_task_is_begun_once_whatever_its_retries() -> None:
    view = View()
    for attempt, phase in (
        (0, "ready"),
        (1, "leased"),
        (1, "running"),
        (1, "backoff"),
        (1, "ready"),
        (2, "leased"),
    ):
        event = TaskState(task_id="a", domain="d", purpose="train", state=phase, attempt=attempt)  # type: ignore[arg-type]
        observe(view, event, 1.0)
    observe(view, TaskState(task_id="b", domain="d", purpose="train", state="succeeded", attempt=1), 1.0)
    observe(view, TaskState(task_id="c", domain="d", purpose="eval", state="leased", attempt=1), 1.0)
    observe(
        view, TaskState(task_id="e", domain="d", purpose="train", state="leased", attempt=1, parent="a"), 1.0
    )
    assert view.begun["d"] == 2


def test_the_curve_follows_checkpoints_and_workers_their_heartbeats() -> None:
    view = View()
    for version in range(3):
        policy = PolicyRef(version=version, uri="u", digest="d")
        metrics = {"reward_mean": version / 4, "layer/tool": 0.5} if version else {}
        observe(
            view, CheckpointPublished(run="r", policy=policy, step=version, metrics=metrics), float(version)
        )
    observe(
        view, WorkerHeartbeat(worker="sampler-0", service="sampler", leases=("x", "y"), policy_version=2), 3.0
    )
    assert view.version == 2
    assert view.rewards == [(1, 0.25), (2, 0.5)]
    assert view.leases(4.0) == 2
    assert view.leases(400.0) == 0


def test_the_screen_shows_step_reward_and_a_silent_worker() -> None:
    view = View()
    observe(view, WorkerHeartbeat(worker="sampler-0", service="sampler"), 0.0)
    policy = PolicyRef(version=4, uri="u", digest="d")
    observe(
        view,
        CheckpointPublished(run="r", policy=policy, step=4, metrics={"reward_mean": 0.5, "layer/tool": 0.5}),
        1.0,
    )
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(render(view, RunConfig(name="shown"), "training", {"trainer": 2}, now=60.0, started=0.0))
    text = console.export_text()
    for wanted in ("shown", "step 4/150", "0.500", "silent 60 s", "restarts 2"):
        assert wanted in text


def test_sparks_and_smoothing() -> None:
    assert spark([0.0, 0.5, 1.0]) == " ▄█"
    assert spark([2.0, -1.0]) == "█ "
    assert smooth([1.0, 0.0], keep=0.5) == [1.0, 0.5]
