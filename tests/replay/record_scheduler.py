"""Record a log for the replay test: `python -m tests.replay.record_scheduler`, when FOLD_VERSION is raised and only then.

The log is made by a simulated sampler pool and verifier that lose, duplicate, delay and reorder; what is kept is the input
(batches with their times and events) and the digest of the state that the fold made of it.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import msgspec

from schemas.base import Event
from schemas.cards import Ladder, Retry, Timeouts
from schemas.checkpoints import CheckpointPublished
from schemas.events import REGISTRY
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.ids import digest, trajectory_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.tasks import (
    DomainPaused,
    DomainResumed,
    PolicyRef,
    QuotaChanged,
    Task,
    TaskCancelled,
    TaskSubmitted,
)
from schemas.verdicts import StageResult, infra
from services.scheduler.effects import Assign, Derive, Effect
from services.scheduler.fold import Batch, Input, step
from services.scheduler.policies import Policies, Policy
from services.scheduler.snapshot import FOLD_VERSION, state_digest
from services.scheduler.state import State
from tests.verdicts import verified

HERE = Path(__file__).parent / "data"
TABLE = Policies(
    domains={
        "lists": Policy(weight=2.0, retry=Retry(failures=1, backoff_s=0.5, backoff_max_s=4.0)),
        "files": Policy(ladder=Ladder(steps=(0.5, 0.0), children=2), nominal=3),
        "boxes": Policy(retry=Retry(infra=0), weight=0.5),
        "stairs": Policy(
            retry=Retry(timeouts=0, backoff_s=0.5),
            ladder=Ladder(steps=(0.4, 0.2), children=2, join="any"),
            timeouts=Timeouts(children_s=40.0),
        ),
    },
    group_size=3,
    groups_per_step=6,
    eta=2,
)


class Kept(msgspec.Struct, array_like=True):
    """One input as kept."""

    type: str
    at: float
    trace: str
    data: msgspec.Raw


class KeptBatch(msgspec.Struct, array_like=True):
    """One batch as kept."""

    seq: int
    now: float
    epoch: int
    caught_up: bool
    inputs: list[Kept]


class Recording(msgspec.Struct):
    """A log and what it folds to."""

    fold: int
    policies: str
    state: str
    effects: str
    batches: list[KeptBatch]


def keep(batch: Batch) -> KeptBatch:
    """A batch in the form in which it is kept."""
    inputs = [
        Kept(type(item.event).__name__, item.at, item.trace, msgspec.Raw(msgspec.msgpack.encode(item.event)))
        for item in batch.inputs
    ]
    return KeptBatch(batch.seq, batch.now, batch.epoch, batch.caught_up, inputs)


def recall(kept: KeptBatch) -> Batch:
    """The batch that was kept."""
    inputs = tuple(
        Input(
            event=msgspec.msgpack.decode(item.data, type=REGISTRY[item.type, 1]), at=item.at, trace=item.trace
        )
        for item in kept.inputs
    )
    return Batch(seq=kept.seq, now=kept.now, epoch=kept.epoch, caught_up=kept.caught_up, inputs=inputs)


def fold_all(batches: list[Batch]) -> tuple[State, str]:
    """The state, and the digest of all effects."""
    state = State()
    effects = [[repr(effect) for effect in step(state, TABLE, batch)] for batch in batches]
    return state, digest(msgspec.msgpack.encode(effects))


class World:
    """Samplers and verifiers with all the faults of real ones."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.held: dict[str, tuple[float, Assign]] = {}
        self.queue: list[Event] = []
        self.released: list[Released] = []
        self.done = 0
        self.version = 0

    def react(self, effects: list[Effect], now: float) -> None:
        """Take up the effects of a batch."""
        for effect in effects:
            if isinstance(effect, Assign) and self.rng.random() > 0.05:
                self.held[effect.event.lease_id] = (now + self.rng.uniform(0.2, 8.0), effect)
            elif isinstance(effect, Derive):
                if effect.awaited and self.rng.random() < 0.1:
                    self.queue.append(TaskCancelled(task_id=effect.child_id, reason="cannot be made"))
                    continue
                difficulty = effect.parent.difficulty if effect.difficulty is None else effect.difficulty
                task = msgspec.structs.replace(effect.parent, id=effect.child_id, difficulty=difficulty)
                self.queue.append(
                    TaskSubmitted(
                        task=task,
                        parent=effect.parent.id,
                        level=effect.level,
                        origin=effect.origin,
                        climb=effect.climb,
                    )
                )

    def work(self, now: float) -> None:
        """Finish what is due."""
        for lease, (ready, effect) in list(self.held.items()):
            if ready > now:
                continue
            del self.held[lease]
            self.done += 1
            lost = self.rng.random() < 0.1
            self.released.append(Released(lease_id=lease, reason="abandoned" if lost else "finished"))
            for index in range(effect.event.group_size):
                self.queue += [self._stage(effect, index, number) for number in range(self.rng.randint(0, 2))]
                self.queue += [self._verdict(effect, index, lost=lost)] * self.rng.choice(
                    [0, 1, 1, 1, 1, 1, 1, 2]
                )

    def heartbeat(self, *, slots: int, draining: bool) -> WorkerHeartbeat:
        """The sampler's heartbeat."""
        given, self.released = tuple(self.released), []
        return WorkerHeartbeat(
            worker="w",
            service="sampler",
            pool="standard",
            slots=slots,
            leases=tuple(self.held),
            released=given,
            draining=draining,
        )

    def take(self) -> list[Event]:
        """Some of what is under way, not always in order."""
        count = self.rng.randint(0, len(self.queue))
        chosen, self.queue = self.queue[:count], self.queue[count:]
        if self.rng.random() < 0.3:
            self.rng.shuffle(chosen)
        if self.done >= 6 * (self.version + 1):
            self.version += 1
            policy = PolicyRef(version=self.version, uri="u", digest="d")
            chosen.append(CheckpointPublished(run="run", policy=policy, step=self.version))
        return chosen

    def _stage(self, effect: Assign, index: int, number: int) -> StageVerified:
        result = StageResult(name="s", weight=1.0, score=1.0, passed=True, snapshot=f"s{number}")
        event = effect.event
        return StageVerified(
            trajectory_id=trajectory_id(event.task.id, event.attempt, index),
            task_id=event.task.id,
            domain=event.task.domain,
            attempt=event.attempt,
            stage=number,
            result=result,
        )

    def _verdict(self, effect: Assign, index: int, *, lost: bool) -> TrajectoryVerified:
        score = self.rng.choice([0.0, 0.0, 0.25, 1.0])
        return verified(effect.event, index, infra("lost") if lost else score)


def record(seed: int = 9, turns: int = 240) -> Recording:
    """A run of the simulation."""
    world, rng = World(seed), random.Random(seed + 1)
    state, batches, now = State(), [], 1_700_000_000.0
    for seq in range(1, turns + 1):
        now += rng.choice([0.01, 0.1, 0.3, 0.5, 1.0, 1.0])
        if seq in {80, 160}:
            now += 45.0  # the scheduler was away
        events: list[Event] = world.take()
        if seq % 3 == 0:
            domain = rng.choice(["lists", "files", "boxes", "stairs", "stairs", "nowhere"])
            task = Task(
                id=f"t{rng.randint(0, 150)}",
                domain=domain,
                prompt="p",
                purpose=rng.choice(["train", "train", "train", "eval"]),
                batch=rng.choice(["", "", f"b{seq // 40}"]),
            )
            events.append(TaskSubmitted(task=task, priority=rng.choice([0, 0, 5])))
        if seq % 40 == 0:
            events.append(TaskCancelled(batch=f"b{seq // 40 - 1}"))
        if seq % 25 == 0:
            events.append(rng.choice([DomainPaused(domain="boxes"), DomainResumed(domain="boxes")]))
        if seq % 60 == 0:
            events.append(QuotaChanged(domain="files", nominal=rng.randint(1, 4)))
        if seq % 70 == 0:
            events.append(WorkerHeartbeat(worker="w", service="sampler", pool="standard", ended="memory"))
        events.append(world.heartbeat(slots=6, draining=100 <= seq < 110))
        inputs = tuple(Input(event=event, at=now - 0.05, trace=f"trace-{seq}") for event in events)
        epoch = 1 + (seq >= 80) + (seq >= 160)
        batch = Batch(seq=seq, now=now, epoch=epoch, caught_up=seq not in {80, 81, 160}, inputs=inputs)
        batches.append(batch)
        world.react(step(state, TABLE, batch), now)
        world.work(now)
    replayed, effects = fold_all(batches)
    if state_digest(replayed) != state_digest(state):
        raise SystemExit("the fold is not deterministic; nothing was recorded")
    return Recording(
        FOLD_VERSION, TABLE.digest(), state_digest(state), effects, [keep(batch) for batch in batches]
    )


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    made = record()
    (HERE / "scheduler.msgpack.gz").write_bytes(gzip.compress(msgspec.msgpack.encode(made), mtime=0))
