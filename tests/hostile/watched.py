"""Judges commands and stages on the hostile tests' slot, every job of which is followed by a look for its traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import terminal
from services.verifier.jail import Job, Limits, Outcome, Slot

CALM = Limits(wall_s=20.0, cpu_s=10.0)
# The check imports what it needs from the standard library, and trusts no file of the answer's to be what it seems.
CHECK = """
import json, sys
with open("/w/result.json", encoding="utf-8") as file:
    value = json.load(file)
print("right" if value == {"sum": 6} else "wrong")
"""
SPEC: dict[str, Any] = {
    "files": {"data.txt": "1\n2\n3\n", "tests/test_sum.py": "assert True\n"},
    "trusted": {"check.py": CHECK, "want.json": '{"sum": 6}\n'},
    "checks": [{"kind": "json", "path": "result.json", "pointer": "/sum", "value": 6}],
    "commands": [
        {"name": "check", "argv": ["/usr/bin/python3", "/t/check.py"], "stdout": "right"},
        {"name": "inline", "argv": ["/usr/bin/python3", "-c", "import json; json.load(open('result.json'))"]},
        {"name": "shell", "run": "cat result.json | cmp -s - /t/want.json"},
    ],
    "protected": ["tests"],
    "ignore": ["*.pyc"],
}


class Watched:
    """The slot, with what holds after any run."""

    def __init__(self, slot: Slot) -> None:
        self.slot, self.runs = slot, 0

    def run(self, job: Job) -> Outcome:
        outcome = self.slot.run(job)
        assert outcome.cause != "infra", outcome.detail
        assert outcome.survivors == 0
        self.runs += 1
        return outcome


@pytest.fixture(name="judge")
def judge_of_commands(slot: Slot, attack: Callable[..., Outcome]) -> Callable[..., Verdict]:
    def run(answer: str, spec: dict[str, Any] = SPEC, family: Any = terminal, **settings: Any) -> Verdict:
        family.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        jail = Watched(slot)
        verdict = family.verify(task, settings, CALM, answer.encode(), jail)
        assert 0 < jail.runs <= family.runs(spec)
        attack(("/bin/true",), CALM)
        assert isinstance(verdict, Verdict)
        return verdict

    return run
