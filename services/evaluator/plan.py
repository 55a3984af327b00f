"""Which tasks an evaluation asks. Invariant: same run, seed and settings, same tasks, whatever the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from schemas.cards import Card
from schemas.ids import derive
from schemas.run import Evaluator
from schemas.tasks import PolicyRef, Sampling, Task, TaskSubmitted


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One question of an evaluation: a held-out task, asked by sampling or greedily."""

    submitted: TaskSubmitted
    domain: str
    layer: str
    greedy: bool
    samples: int


def evaluation_id(run: str, version: int) -> str:
    """Deterministic id, so that a restarted evaluator finds its own tasks again."""
    return derive("evaluation", run, version)


def plan(
    drawn: Iterable[tuple[Card, Task]],
    policy: PolicyRef,
    settings: Evaluator,
    *,
    evaluation: str,
    priority: int = 50,
) -> list[Item]:
    """Items for held-out tasks `drawn`: each once with `settings.samples` samples at temperature 1, once greedily if asked."""
    items = []
    for card, task in drawn:
        for greedy in (False, True) if settings.greedy else (False,):
            samples = 1 if greedy else settings.samples
            temperature = 0.0 if greedy else 1.0
            asked = msgspec.structs.replace(
                task,
                id=derive("eval", evaluation, task.id, "greedy" if greedy else "sampled"),
                purpose="eval",
                policy=policy,
                group_size=samples,
                sampling=Sampling(temperature=temperature, max_tokens=card.sampling.max_tokens),
                batch=f"eval-{evaluation}",
            )
            items.append(
                Item(
                    submitted=TaskSubmitted(task=asked, priority=priority),
                    domain=card.name,
                    layer=card.layer,
                    greedy=greedy,
                    samples=samples,
                )
            )
    return items
