"""Answers of a campaign and what each must score. Invariant: the score is stated by the kind, never taken from a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.cards import Card, parse_card
from schemas.tasks import Task
from schemas.verdicts import Verdict

FULL = 1.0
CLOSE = 1e-9
Hostile = tuple[str | bytes, float | None]
"""An answer and its score; None: anything below full."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of asking: tasks whose honest answers are right, and answers that would have the score without the work.

    `spec` and `domain` make the task of `honest` and `hostile`; `drawn` brings tasks of its own instead.
    """

    name: str
    family: str
    domain: str
    spec: dict[str, Any] = field(default_factory=dict)
    honest: Sequence[str] = ()
    hostile: Sequence[Hostile] = ()
    drawn: tuple[Sequence[Answer], Sequence[Answer]] = ((), ())

    def answers(self, *, honest: bool) -> list[Answer]:
        """All that it has of one sort."""
        if self.drawn != ((), ()):
            return list(self.drawn[not honest])
        task = Task(id=f"own-{self.name}", domain=self.domain, prompt="p", spec=self.spec)
        if honest:
            return [Answer(self.name, task, raw.encode(), FULL) for raw in self.honest]
        return [
            Answer(self.name, task, raw if isinstance(raw, bytes) else raw.encode(), score)
            for raw, score in self.hostile
        ]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a task, and its score: None is anything below full."""

    kind: str
    task: Task
    raw: bytes
    score: float | None

    def fault(self, verdict: Verdict) -> str:
        """What is wrong with a verdict on it; "" if nothing is."""
        if verdict.outcome == "infra" or verdict.score is None:
            return "no verdict"
        full = verdict.score == FULL and verdict.passed
        if self.score is None:
            return "full score without the work" if full or verdict.passed else ""
        if abs(verdict.score - self.score) > CLOSE:
            return f"scored {verdict.score}, should be {self.score}"
        return "" if verdict.passed == (self.score == FULL) else "passed and score do not agree"


def spread(kinds: Sequence[Kind], count: int, rng: random.Random) -> list[Answer]:
    """`count` answers, every kind honest and hostile alike, one after another through all that each kind has."""
    lines: list[list[Answer]] = []
    for kind in kinds:
        for honest in (True, False):
            made = kind.answers(honest=honest)
            if not made:
                raise ValueError(f"kind {kind.name} has no {'honest' if honest else 'hostile'} answer")
            rng.shuffle(made)
            lines.append(made)
    if count < len(lines):
        raise ValueError(f"{count} answers cannot cover {len(lines)} sorts of answers")
    found = [line[turn % len(line)] for turn in range(-(-count // len(lines))) for line in lines]
    found = found[:count]
    rng.shuffle(found)
    return found


def card(family: str, name: str, limits: dict[str, Any], **settings: Any) -> Card:
    """A card `own.NAME` with these limits and verifier settings."""
    text = f'name="own.{name}"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="{family}"\n'
    text += "".join(f"settings.{key}={value!r}\n" for key, value in settings.items())
    text += "[limits]\n" + "".join(f"{key}={value!r}\n" for key, value in limits.items())
    return parse_card(text, name)
