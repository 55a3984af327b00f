"""What an evaluation asks, and when it is complete."""

from __future__ import annotations

import msgspec

from schemas.cards import Card, parse_card
from schemas.rewards import TrajectoryVerified
from schemas.run import Evaluator
from schemas.tasks import PolicyRef, Task
from schemas.verdicts import Part, infra, scored
from services.evaluator.collect import Collection
from services.evaluator.plan import Item, evaluation_id, plan

POLICY = PolicyRef(version=3, uri="folder", digest="d")
CARD: Card = parse_card(
    'name = "a.b"\nlayer = "tool"\nsummary = "s"\ngenerator = "m:f"\n[sampling]\nmax_tokens = 9\n[verifier]\nfamily = "call"',
    "test",
)


def items(tasks: int = 2, samples: int = 3, *, greedy: bool = True) -> list[Item]:
    drawn = [(CARD, Task(id=f"t{n}", domain="a.b", prompt=f"p{n}")) for n in range(tasks)]
    return plan(drawn, POLICY, Evaluator(samples=samples, greedy=greedy), evaluation=evaluation_id("run", 3))


def verdict(item: Item, index: int, score: float | None, attempt: int = 1) -> TrajectoryVerified:
    task = item.submitted.task
    said = infra("broken") if score is None else scored([Part(name="x", weight=1.0, score=score)])
    return TrajectoryVerified(
        trajectory_id=f"{task.id}/{attempt}/{index}",
        task_id=task.id,
        domain=task.domain,
        purpose="eval",
        attempt=attempt,
        group_id=f"{task.id}/{attempt}",
        group_size=item.samples,
        index=index,
        lease_id="l",
        content="c",
        verdict=said,
    )


def test_each_task_is_asked_by_sampling_and_greedily_from_the_pinned_policy() -> None:
    asked = items()
    assert [(item.greedy, item.samples) for item in asked] == [(False, 3), (True, 1)] * 2
    for item in asked:
        task = item.submitted.task
        assert task.policy == POLICY
        assert task.purpose == "eval"
        assert task.sampling is not None
        assert task.sampling.temperature == (0.0 if item.greedy else 1.0)
        assert task.sampling.max_tokens == 9
    assert len({item.submitted.task.id for item in asked}) == 4


def test_the_same_evaluation_asks_the_same_tasks_and_another_asks_others() -> None:
    assert items() == items()
    assert evaluation_id("run", 3) != evaluation_id("run", 4)


def test_complete_once_every_task_has_a_usable_attempt() -> None:
    asked = items(tasks=1, greedy=False)
    collection = Collection(asked)
    for index, score in enumerate((1.0, 0.0)):
        collection.add(verdict(asked[0], index, score))
    assert not collection.complete()
    collection.add(verdict(asked[0], 2, 0.5))
    assert collection.complete()
    assert collection.answered()[0].scores == (1.0, 0.0, 0.5)


def test_duplicates_change_nothing() -> None:
    asked = items(tasks=1, greedy=False)
    collection = Collection(asked)
    for _ in range(3):
        collection.add(verdict(asked[0], 0, 1.0))
    assert not collection.complete()
    foreign = msgspec.structs.replace(verdict(asked[0], 1, 1.0), task_id="other")
    collection.add(foreign)
    assert collection.progress == (0, 1)


def test_an_attempt_of_infra_verdicts_does_not_decide_and_the_next_one_does() -> None:
    asked = items(tasks=1, greedy=False)
    collection = Collection(asked)
    for index in range(3):
        collection.add(verdict(asked[0], index, 1.0 if index == 0 else None))
    assert not collection.complete()
    for index in range(3):
        collection.add(verdict(asked[0], index, 0.25 if index else None, attempt=2))
    assert collection.complete()
    row = collection.answered()[0]
    assert row.scores == (0.25, 0.25)
    assert row.infra == 1
