"""The verifier families by name. Invariant: a family is loaded when first used, so that a worker imports only what it needs.

A family is a module with `verify(task, settings, limits, submission, jail) -> Verdict` and `check_spec(spec, settings)`, and
optionally `runs(spec) -> int`, the jail runs that one answer may take (1 if absent). One whose answers may take very long goes
by steps as well: `begin`, `conclude` and `step_runs` (stages.py).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.jail import Jail, Limits
from services.verifier.specs import SpecError

VERSION = "7"
"""Part of every cache key and of every event: raise it when any verdict changes."""
NAMES = ("code", "terminal", "document", "geometry", "call", "format", "stages")


class Family(Protocol):
    """What a family module offers."""

    def verify(
        self, task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail
    ) -> Verdict:
        """The verdict on a submission."""
        ...

    def check_spec(self, spec: dict[str, Any], settings: dict[str, Any]) -> None:
        """Raises SpecError unless the spec and settings are complete."""
        ...


def family(name: str) -> Family:
    """The family called `name`. Raises SpecError if there is none."""
    if name not in NAMES:
        raise SpecError(f"verifier.family {name!r} does not exist; choose one of {', '.join(NAMES)}")
    return cast("Family", import_module(f"{__name__}.{name}"))


def runs(name: str, spec: dict[str, Any]) -> int:
    """Jail runs that one answer to `spec` may take; bounds the time a verdict may need."""
    count = getattr(family(name), "runs", None)
    return max(1, int(count(spec))) if count is not None else 1


def stepwise(name: str) -> bool:
    """Whether there is such a family and its answers can be judged step by step."""
    return name in NAMES and hasattr(family(name), "begin")


def step_runs(name: str, spec: dict[str, Any]) -> int:
    """Jail runs that one step of an answer to `spec` may take; `name` is a stepwise family."""
    return max(1, int(cast("Any", family(name)).step_runs(spec)))
