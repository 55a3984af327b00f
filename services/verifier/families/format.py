"""Form constraints on a text. Invariant: every constraint is checked, an unknown id is an error, nothing passes by default.

Constraints are a list: an id that stands there twice is checked twice and counts twice. Each has a score in [0, 1] (numeric
ones fall in a straight line with the distance, see constraints/kinds.py) and a weight. Setting `credit`: "rate" (default) is the
weighted mean; "strict" is 1 if every constraint is fully met, else 0. The text is data: all checks are linear in it, own
tokeniser, no model, no chance, no locale. An empty answer scores 0 whatever is asked, and so
does one of characters that nobody sees (constraints/seen.py).
"""

# ruff: noqa: ARG001 (families have one signature)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families.constraints import kind
from services.verifier.families.constraints.conflicts import conflict
from services.verifier.families.constraints.seen import visible_in
from services.verifier.families.constraints.text import Text
from services.verifier.jail import Jail, Limits

CREDITS = ("rate", "strict")
MAX_CONSTRAINTS = 64


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`constraints` [{`id`, its arguments, `weight`}], at least one; setting `credit`. Raises SpecError; so do contradictions."""
    specs.keys(settings, ("credit",), "verifier.settings")
    specs.choice(settings.get("credit", "rate"), CREDITS, "verifier.settings.credit")
    constraints = specs.items(spec.get("constraints"), "spec.constraints", least=1)
    if len(constraints) > MAX_CONSTRAINTS:
        raise specs.SpecError(
            f"spec.constraints has {len(constraints)} entries, {MAX_CONSTRAINTS} are allowed"
        )
    for index, constraint in enumerate(constraints):
        where = f"spec.constraints[{index}]"
        kind(specs.table(constraint, where), where).check_arguments(constraint, where)
        specs.number(constraint.get("weight", 1.0), f"{where}.weight", low=1e-6, high=1e6)
    said = conflict(constraints)
    if said is not None:
        raise specs.SpecError(f"spec.{said}")


def scores(text: str, constraints: Sequence[dict[str, Any]]) -> list[float]:
    """The score of each constraint, in their order."""
    taken_apart = Text(text)
    return [kind(each, "constraint").score(taken_apart, visible_in(each)) for each in constraints]


def loose(text: str, constraints: Sequence[dict[str, Any]]) -> list[bool]:
    """Whether each constraint is fully met by the text without its first or last line or asterisks: for reports, never a reward.

    Any of eight variants may meet it, as in the public sets' loose accuracy; the text itself is one of them.
    """
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    tried = [scores(each, constraints) for each in (*cut, *(each.replace("*", "") for each in cut))]
    return [any(score == 1.0 for score in column) for column in zip(*tried, strict=True)]


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """One part a constraint, in their order. Raises UnusableAnswerError."""
    constraints = task.spec["constraints"]
    got = scores(decode(submission), constraints)
    met = all(score == 1.0 for score in got)
    return scored(
        (
            Part(name=clip(each["id"], 80), weight=float(each.get("weight", 1.0)), score=score)
            for each, score in zip(constraints, got, strict=True)
        ),
        gate=float(met) if settings.get("credit") == "strict" else 1.0,
    )
