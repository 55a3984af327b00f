"""Whatever the order, the duplicates, the losses and the restarts: a group is trained once at most, a whole one is not lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import group_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.tasks import Task
from schemas.trajectories import Span, TrajectoryCompleted, content_digest
from schemas.verdicts import Part, infra
from schemas.verdicts import scored as verdict
from services.trainer.assemble import Assembler, Place, Saved

if TYPE_CHECKING:
    from schemas.verdicts import Verdict

PARTITIONS = 2


def record(task: Task, index: int, size: int, answer: int, result: Verdict) -> tuple[Any, Any]:
    common: dict[str, Any] = {
        "attempt": 1,
        "group_id": group_id(task.id, 1),
        "group_size": size,
        "index": index,
        "lease_id": "l",
    }
    key = trajectory_id(task.id, 1, index)
    sample = TrajectoryCompleted(
        trajectory_id=key,
        task=task,
        prompt_ids=[1],
        token_ids=[answer],
        logprobs=[-1.0],
        spans=(Span(version=0, start=0, end=1),),
        finish="stop",
        text="",
        **common,
    )
    reward = TrajectoryVerified(
        trajectory_id=key,
        task_id=task.id,
        domain=task.domain,
        purpose="train",
        content=content_digest([answer], ""),
        verdict=result,
        **common,
    )
    return sample, reward


class World:
    """A log, an assembler that reads it, and its checkpoints."""

    def __init__(self, *, crashes: float, rng: random.Random) -> None:
        self.rng, self.crashes = rng, crashes
        self.log: dict[str, list[Any]] = {
            f"{topic}/{partition}": []
            for topic in ("trajectories", "rewards")
            for partition in range(PARTITIONS)
        }
        self.trained: list[str] = []
        self.version = 0
        self.positions = dict.fromkeys(self.log, 0)
        self.assembler = self.new(None)
        self.checkpoint()

    def new(self, saved: Saved | None) -> Assembler:
        return Assembler(vocabulary=50, max_staleness=1000, timeout_s=1e9, version=self.version, saved=saved)

    def checkpoint(self) -> None:
        self.saved = self.assembler.save(self.positions)
        self.low = self.assembler.low_water(self.positions)

    def deliver(self, source: str, offset: int) -> None:
        topic, _, partition = source.partition("/")
        place = Place(0, topic, int(partition), offset)
        add = self.assembler.add_sample if topic == "trajectories" else self.assembler.add_verdict
        add(self.log[source][offset], place, 0.0)

    def write(self, source: str, event: Any) -> None:
        self.log[source].append(event)
        self.deliver(source, self.positions[source])
        self.positions[source] += 1
        if self.assembler.due(2):
            self.step()

    def step(self) -> None:
        taken = self.assembler.take(2, self.version)
        if self.rng.random() >= self.crashes:
            self.trained += [group.id for group in taken]
            self.version += 1
            self.checkpoint()
            return
        # The step is lost with the process: back to the checkpoint.
        self.assembler = self.new(self.saved)
        for source, first in self.low.items():
            for offset in range(first, len(self.log[source])):
                self.deliver(source, offset)


def history(
    rng: random.Random, groups: int, losses: float, repeats: float
) -> tuple[list[tuple[str, Any]], set[str]]:
    """Records with their partition, in order of writing, and the ids of the groups that can be trained on."""
    stream: list[tuple[str, Any]] = []
    whole: set[str] = set()
    for number in range(groups):
        task, size = Task(id=f"t{number}", domain="d", prompt="p"), rng.randint(2, 4)
        complete, valid = True, 0
        for index in range(size):
            fault = rng.random() < 0.2
            result = infra("x") if fault else verdict([Part(name="a", weight=1.0, score=rng.random())])
            pair = record(task, index, size, rng.randrange(50), result)
            for topic, event in zip(("trajectories", "rewards"), pair, strict=True):
                if rng.random() < losses:
                    complete = complete and topic == "trajectories" and fault
                else:
                    stream += [(f"{topic}/{number % PARTITIONS}", event)] * (1 + (rng.random() < repeats))
            valid += not fault
        if complete and valid >= 2:
            whole.add(group_id(task.id, 1))
    rng.shuffle(stream)
    return stream, whole


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    groups=st.integers(1, 6),
    losses=st.floats(0.0, 0.15),
    repeats=st.floats(0.0, 0.5),
    crashes=st.floats(0.0, 0.3),
)
def test_at_most_once_and_nothing_whole_is_lost(
    *, seed: int, groups: int, losses: float, repeats: float, crashes: float
) -> None:
    rng = random.Random(seed)
    stream, whole = history(rng, groups, losses, repeats)
    world = World(crashes=crashes, rng=rng)
    for source, event in stream:
        world.write(source, event)
    trained = world.trained + [group.id for group in world.assembler.take(1000, world.version)]
    assert len(trained) == len(set(trained))
    assert set(trained) == whole
