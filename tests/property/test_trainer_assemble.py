"""Whatever the order, the duplicates, the losses and the restarts: a group is trained once at most, a whole one is not lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.ids import group_id, trajectory_id
from schemas.rewards import TrajectoryVerified
from schemas.states import State, TaskState
from schemas.tasks import Task
from schemas.trajectories import Span, TrajectoryCompleted, content_digest
from schemas.verdicts import Part, infra
from schemas.verdicts import scored as verdict
from services.trainer.assemble import Assembler, Saved
from services.trainer.place import Place

if TYPE_CHECKING:
    from schemas.verdicts import Verdict

PARTITIONS = 2


def record(
    task: Task, index: int, size: int, answer: int, result: Verdict, attempt: int = 1
) -> tuple[Any, Any]:
    common: dict[str, Any] = {
        "attempt": attempt,
        "group_id": group_id(task.id, attempt),
        "group_size": size,
        "index": index,
        "lease_id": "l",
    }
    key = trajectory_id(task.id, attempt, index)
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


class Lagging:
    """A whole log, and a reader that is anywhere in each partition, as the trainer's loop drives it."""

    def __init__(self, log: dict[str, list[Any]], rng: random.Random) -> None:
        self.log, self.rng = log, rng
        self.written = dict.fromkeys(log, 0)
        self.positions = dict.fromkeys(log, 0)
        self.assembler = self.new(None)
        self.targets: dict[str, int] | None = None
        self.trained: list[str] = []
        self.saved, self.low = self.assembler.save({}), dict(self.positions)

    def new(self, saved: Saved | None) -> Assembler:
        return Assembler(vocabulary=50, max_staleness=1000, timeout_s=0.0, saved=saved)

    def write(self, source: str, event: Any) -> None:
        self.log[source].append(event)
        self.written[source] += 1

    def read(self) -> None:
        sources = [source for source in self.log if self.positions[source] < self.written[source]]
        if not sources:
            return
        source = self.rng.choice(sources)
        topic, _, partition = source.partition("/")
        offset = self.positions[source]
        self.positions[source] += 1
        event, place = self.log[source][offset], Place(0, topic, int(partition), offset)
        match event:
            case TaskState():
                self.assembler.add_state(event, place)
            case TrajectoryCompleted():
                self.assembler.add_sample(event, place, 0.0)
            case _:
                self.assembler.add_verdict(event, place, 0.0)

    def close(self) -> None:
        if self.targets is not None and all(
            self.positions[name] >= end for name, end in self.targets.items()
        ):
            self.targets = None
            self.assembler.close()
        if self.targets is None and self.assembler.attempts.noted:
            self.assembler.attempts.seal()
            self.targets = {name: end for name, end in self.written.items() if "states" not in name}

    def step(self) -> None:
        self.trained += [group.id for group in self.assembler.take(2, 0)]
        self.saved, self.low = self.assembler.save(self.positions), self.assembler.low_water(self.positions)

    def crash(self) -> None:
        self.assembler, self.positions, self.targets = self.new(self.saved), dict(self.low), None


def lives(rng: random.Random, number: int, losses: float) -> tuple[list[tuple[str, Any]], set[str]]:
    """A task's records with their partitions in the order of writing, attempt after attempt, and its whole groups."""
    task, whole = Task(id=f"t{number}", domain="d", prompt="p"), set()
    where = f"task-states/{rng.randrange(PARTITIONS)}"
    attempts = rng.randint(1, 3)

    def state(name: State, attempt: int) -> tuple[str, TaskState]:
        return where, TaskState(task_id=task.id, domain="d", purpose="train", state=name, attempt=attempt)

    story: list[tuple[str, Any]] = []
    for attempt in range(1, attempts + 1):
        story.append(state("leased", attempt))
        parts: list[tuple[str, Any]] = []
        for index in range(2):
            result = verdict([Part(name="a", weight=1.0, score=0.5)])
            sample, reward = record(task, index, 2, rng.randrange(50), result, attempt)
            place = number % PARTITIONS
            parts += [(f"trajectories/{place}", sample), (f"rewards/{place}", reward)]
        kept = [part for part in parts if rng.random() >= losses]
        story += kept
        if kept == parts:
            whole.add(group_id(task.id, attempt))
        if rng.random() < 0.7:  # else its end is told together with what follows
            story.append(state("backoff", attempt))
    story.append(state("failed", attempts))
    return story, whole


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    tasks=st.integers(1, 6),
    losses=st.floats(0.0, 0.4),
    crashes=st.floats(0.0, 0.05),
)
def test_a_group_is_forgotten_exactly_when_its_attempt_ended_without_completing_it(
    *, seed: int, tasks: int, losses: float, crashes: float
) -> None:
    """However far apart the topics are read, with restarts: no whole group is given up, no other one stays. No time is needed."""
    rng = random.Random(seed)
    told = [lives(rng, number, losses) for number in range(tasks)]
    stories = [story for story, _ in told]
    topics = ("trajectories", "rewards", "task-states")
    world = Lagging({f"{topic}/{part}": [] for topic in topics for part in range(PARTITIONS)}, rng)
    while any(stories) or world.positions != world.written or world.targets or world.assembler.attempts.noted:
        if any(stories) and rng.random() < 0.5:
            world.write(*rng.choice([story for story in stories if story]).pop(0))
        else:
            world.read()
        world.close()
        if world.assembler.due(2):
            world.step()
        if rng.random() < crashes:
            world.crash()
    trained = world.trained + [group.id for group in world.assembler.take(1000, 0)]
    assert len(trained) == len(set(trained))
    assert set(trained) == {name for _, whole in told for name in whole}
    assert world.assembler.waiting == 0
    assert world.assembler.attempts.under_way == {}
    assert world.assembler.attempts.places() == []
