"""From cases to a part. Invariant: a case without a positive record of its own does not pass, and no rule turns that round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.verdicts import Part, clip
from services.verifier import specs

CREDITS = ("rate", "all", "rate_power")
SETTINGS = ("credit", "power")


def check(settings: dict[str, Any]) -> None:
    """`credit`: "rate" (weighted share of cases passed, the default), "all", or "rate_power" (share ** `power`, default 2)."""
    specs.choice(settings.get("credit", "rate"), CREDITS, "verifier.settings.credit")
    specs.number(settings.get("power", 2.0), "verifier.settings.power", low=0.1, high=100.0)


def check_weight(case: dict[str, Any], where: str) -> None:
    """A case's `weight`, 1 if absent. Raises SpecError."""
    if specs.number(case.get("weight", 1.0), f"{where}.weight", low=0.0, high=1e6) <= 0.0:
        raise specs.SpecError(f"{where}.weight is 0: such a case decides nothing, leave it out")


def weights(cases: Sequence[dict[str, Any]]) -> list[float]:
    """The weight of each case."""
    return [float(case.get("weight", 1.0)) for case in cases]


def part(
    faults: Sequence[str], shares: Sequence[float], settings: dict[str, Any], names: Sequence[str]
) -> Part:
    """The part `tests`: `faults` says for each case why it did not pass, empty where it did."""
    good = sum(weight for weight, fault in zip(shares, faults, strict=True) if not fault)
    rate = 1.0 if not any(faults) else min(good / sum(shares), 1.0)
    credit = settings.get("credit", "rate")
    score = rate
    if credit == "all":
        score = float(not any(faults))
    elif credit == "rate_power":
        score = rate ** float(settings.get("power", 2.0))
    passed = sum(not fault for fault in faults)
    first = next((f"; {name}: {fault}" for name, fault in zip(names, faults, strict=True) if fault), "")
    return Part(
        name="tests", weight=1.0, score=score, evidence=clip(f"{passed} of {len(faults)} cases{first}")
    )
