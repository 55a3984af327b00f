"""How a task that waits for its sub-tasks ends. Invariant: by the sub-tasks that were measured; a fault of ours decides nothing.

Pure: what the sub-tasks came to is given, what that makes of the task comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from schemas.states import State as Phase

Rule = Literal["none", "all", "any", "mean"]
Happening = Literal["passed", "failed", "died"]


class Child(msgspec.Struct, frozen=True):
    """A sub-task; `phase` None while it has not ended, `score` None where there is none."""

    id: str
    phase: Phase | None = None
    score: float | None = None

    @property
    def passed(self) -> bool:
        """It ended well."""
        return self.phase == "succeeded"

    @property
    def unmeasured(self) -> bool:
        """It ended for a reason that says nothing about the task: cancelled, rejected, or lost to infrastructure."""
        return self.phase in ("dead", "cancelled", "rejected")


class Joined(msgspec.Struct, frozen=True):
    """The end of the waiting task."""

    happening: Happening
    score: float | None
    reason: str


def joined(rule: str, enough: float, children: Sequence[Child], *, over: bool = False) -> Joined | None:
    """What the sub-tasks make of their parent, None while that is open; `over`: the waiting has ended, decide by what is in.

    `all`: the first that fails decides, and success needs every one. `any`: the first that passes decides.
    `mean`: the mean score of those that have one, against `enough`, when all have ended.
    """
    scores = [child.score for child in children if child.score is not None]
    score = sum(scores) / len(scores) if scores else None
    passed = sum(child.passed for child in children)
    open_ = [] if over else [child for child in children if child.phase is None]
    missed = [
        child for child in children if child.phase is not None and not child.passed and not child.unmeasured
    ]
    said = f"{passed} of {len(children)} sub-tasks passed, join {rule}"
    if rule == "any" and passed:
        return Joined("passed", score, said)
    if rule == "all" and missed:
        return Joined("failed", score, said)
    if open_:
        return None
    late = sum(child.phase is None for child in children)
    said += f", {late} did not end in time" * bool(late)
    if rule == "mean":
        if score is None:
            return Joined("died", None, said + ", none was measured")
        return Joined("passed" if score >= enough and not late else "failed", score, said)
    if passed == len(children):
        return Joined("passed", score, said)
    if late or missed:
        return Joined("failed", score, said)
    return Joined("died", score, said + ", the others were never measured")
