"""What every family of data promises of any answer: a sound verdict, in bounded time and memory, and never our fault."""

from __future__ import annotations

import math
import resource
import time
from typing import Any, cast

from schemas.cards import parse_card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.engine import judge
from services.verifier.jail import Jail

SECONDS = 5.0
"""Processor time that one verdict may take. The budgets of the families are far below; a machine may be slow."""
GROWTH = 256 << 20
"""Bytes by which the most memory that this process ever had may grow with one verdict."""


def verdict(
    family: str, layer: str, spec: dict[str, Any], answer: str | bytes, settings: str = ""
) -> Verdict:
    """The verdict through the service's own engine, given twice and compared."""
    card = parse_card(
        f'name = "t.{family}"\nlayer = "{layer}"\nsummary = "s"\ngenerator = "a:b"\n[verifier]\nfamily = "{family}"\n'
        + settings,
        "card",
    )
    raw = answer if isinstance(answer, bytes) else answer.encode("utf-8", "surrogatepass")
    task = Task(id="t", domain=f"t.{family}", prompt="p", spec=spec)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    made = judge(task, card, raw, cast("Jail", None), 1 << 25)
    assert time.process_time() - begun < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) << 10 < GROWTH
    assert made.outcome in {"scored", "invalid"}, made
    assert math.isfinite(points(made))
    assert 0.0 <= points(made) <= 1.0
    assert made.passed == (made.score == 1.0)
    assert judge(task, card, raw, cast("Jail", None), 1 << 25).digest == made.digest
    return made


def points(made: Verdict) -> float:
    """The score, which one that `verdict` has looked at does have."""
    assert made.score is not None
    return made.score
