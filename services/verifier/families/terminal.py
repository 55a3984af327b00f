"""One shell command against the final state. Invariant: doing nothing earns nothing, whatever already held.

Rule: checks that hold on the untouched files (with nothing printed and exit 0) earn no credit; they are a gate, the share
of them that still holds. Credit is the weighted share of the other checks. A touched path that no check speaks of lowers
the score by `n / (n + strays)` for `n` checks. A touched protected path makes the score 0.
"""

# ruff: noqa: ARG001 (every family has the same signature)
from __future__ import annotations

from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import UnusableAnswerError, decode
from services.verifier.families import state
from services.verifier.families.driven import ended
from services.verifier.jail import Jail, Job, Limits

SHELL = "/bin/sh"
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/w", "LC_ALL": "C"}
MAX_COMMAND = 100_000


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`files` {path: text}, `checks` [...], `protected` [path]. No settings. Raises SpecError."""
    specs.keys(settings, (), "verifier.settings")
    specs.keys(spec, ("files", "checks", "protected"), "spec")
    state.check_files(spec)
    state.check_checks(spec.get("checks"), "spec.checks")
    untouched = state.initial(spec.get("files", {}))
    if all(state.holds(check, untouched) for check in spec["checks"]):
        raise specs.SpecError("spec.checks all hold before any command has run: add one that does not")


def command(text: str) -> tuple[str, ...]:
    """Argument vector for one answer. Raises UnusableAnswerError for text that cannot be a command."""
    if "\0" in text:
        raise UnusableAnswerError("the command holds a NUL character")
    if len(text.encode("utf-8")) > MAX_COMMAND:
        raise UnusableAnswerError(f"the command has more than {MAX_COMMAND} bytes")
    return (SHELL, "-c", text)


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule. Raises UnusableAnswerError."""
    argv = command(decode(submission))
    spec = task.spec
    files: dict[str, str] = spec.get("files", {})
    outcome = jail.run(Job(argv=argv, files=state.entry_files(files), env=ENV, limits=limits))
    if outcome.cause == "infra":
        return infra(clip(f"the jail failed: {outcome.detail}"))
    before = state.initial(files)
    final = state.after(before, outcome)
    parts, held, gates = [], 0, 0
    for check in spec["checks"]:
        good = state.holds(check, final)
        gated = state.holds(check, before)
        gates += gated
        held += gated and good
        weight = 0.0 if gated else float(check.get("weight", 1.0))
        parts.append(Part(name=clip(state.label(check), 80), weight=weight, score=float(good)))
    paths = state.touched(outcome)
    stray = state.strays(paths, spec["checks"])
    broken = state.broken(paths, spec.get("protected", []))
    gate = (held / gates if gates else 1.0) * len(parts) / (len(parts) + len(stray))
    if broken or not outcome.diff.complete or outcome.cause in state.OUR_KILLS:
        # A command that had to be stopped did not do the task, whatever stands there at that moment.
        gate = 0.0
    notes = [ended(outcome)]
    if stray:
        notes.append(f"{len(stray)} stray: {', '.join(stray[:3])}")
    if broken:
        notes.append(f"protected: {', '.join(broken[:3])}")
    return scored(parts, gate=gate, evidence=clip("; ".join(notes)))
