"""One shell command against the final state. Invariant: doing nothing earns nothing, whatever already held.

What is judged: `checks`, predicates on the final state (predicates.py); `commands`, the verifier's own, run in another jail on
a frozen copy of what the answer left (commands.py); `tree`, the whole folder against the wanted one (tree_f1.py).

Rule: checks and commands that hold on the untouched files (with nothing printed and exit 0) earn no credit; they are a
gate, the share of them that still holds. Credit is the weighted share of the rest. Without a `tree`, whose precision says
so already, a touched path that no check speaks of lowers the score by `n / (n + strays)` for `n` checks and commands; what
matches an `ignore` glob does not. A touched protected path makes the score 0.
"""

# ruff: noqa: ARG001 (every family has the same signature)
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import UnusableAnswerError, decode
from services.verifier.families import commands, predicates, state, tree_f1
from services.verifier.families.commands import JailFaultError, Result
from services.verifier.families.driven import ended
from services.verifier.jail import Jail, Job, Limits, Outcome

SHELL = "/bin/sh"
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/w", "LC_ALL": "C"}
MAX_COMMAND = 100_000
SPEC = ("files", "checks", "protected", "ignore", "commands", "trusted", "tree")


def runs(spec: dict[str, Any]) -> int:
    """Jail runs that one answer may take: itself, and each command on its files and on the untouched ones."""
    return 1 + 2 * commands.count(spec.get("commands"))


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`files` {path: text}, `checks` [...], `protected` [path]; `commands`, `trusted` {path: text under /t}, `tree`, `ignore`.

    At least one of `checks`, `commands` and `tree`. No settings. Raises SpecError.
    """
    specs.keys(settings, (), "verifier.settings")
    specs.keys(spec, SPEC, "spec")
    state.check_files(spec)
    state.check_laid(spec.get("trusted", {}), "spec.trusted")
    more = bool(spec.get("commands")) or "tree" in spec
    predicates.check_checks(spec.get("checks", [] if more else None), "spec.checks", least=0 if more else 1)
    commands.check_commands(spec.get("commands", []), "spec.commands", spec.get("trusted"))
    untouched = state.initial(spec.get("files", {}))
    if "tree" in spec:
        tree_f1.check_tree(spec["tree"], untouched, "spec.tree")
    elif not more and all(predicates.holds(check, untouched) for check in spec["checks"]):
        raise specs.SpecError("spec.checks all hold before any command has run: add one that does not")


def command(text: str) -> tuple[str, ...]:
    """Argument vector for one answer. Raises UnusableAnswerError for text that cannot be a command."""
    if "\0" in text:
        raise UnusableAnswerError("the command holds a NUL character")
    if len(text.encode("utf-8")) > MAX_COMMAND:
        raise UnusableAnswerError(f"the command has more than {MAX_COMMAND} bytes")
    return (SHELL, "-c", text)


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule. Raises UnusableAnswerError, and SpecError when all held on the untouched files."""
    argv = command(decode(submission))
    spec = task.spec
    own: list[dict[str, Any]] = spec.get("commands", [])
    files: dict[str, str] = spec.get("files", {})
    keep = bool(own) or predicates.needs_content(spec.get("checks", []))
    outcome = jail.run(Job(argv=argv, files=state.entry_files(files), env=ENV, limits=limits, keep=keep))
    if outcome.cause == "infra":
        return infra(clip(f"the jail failed: {outcome.detail}"))
    try:
        before, after = _by_command(spec, own, outcome, limits, jail)
    except JailFaultError as error:
        return infra(clip(str(error)))
    finally:
        if outcome.snapshot is not None:
            outcome.snapshot.close()
    return _verdict(spec, outcome, before, after)


def _by_command(
    spec: dict[str, Any], own: Sequence[dict[str, Any]], outcome: Outcome, limits: Limits, jail: Jail
) -> tuple[list[Result], list[Result]]:
    """How the commands went on the untouched files, and on what the answer left. Raises JailFaultError."""
    if not own:
        return [], []
    trusted = spec.get("trusted", {})
    before = commands.run(own, spec.get("files", {}), trusted, limits, jail)
    if outcome.snapshot is None or outcome.cause in state.OUR_KILLS:
        return before, [Result(passed=False, evidence="not run: nothing to run it on")] * len(own)
    return before, commands.run(own, outcome.snapshot, trusted, limits, jail)


def _verdict(spec: dict[str, Any], outcome: Outcome, before: list[Result], after: list[Result]) -> Verdict:
    untouched = state.initial(spec.get("files", {}))
    final = state.after(untouched, outcome)
    checks: list[dict[str, Any]] = spec.get("checks", [])
    judged = [
        (
            predicates.label(check),
            check,
            predicates.holds(check, untouched),
            predicates.holds(check, final),
            "",
        )
        for check in checks
    ]
    judged += [
        (f"command {each['name']}", each, old.passed, new.passed, new.evidence)
        for each, old, new in zip(spec.get("commands", []), before, after, strict=True)
    ]
    parts, held, gates = [], 0, 0
    for name, each, gated, good, evidence in judged:
        gates += gated
        held += gated and good
        weight = 0.0 if gated else float(each.get("weight", 1.0))
        parts.append(Part(name=clip(name, 80), weight=weight, score=float(good), evidence=clip(evidence)))
    ignore: list[str] = spec.get("ignore", [])
    if "tree" in spec:
        value, said = tree_f1.score(spec["tree"], untouched, final, ignore)
        weight = float(spec["tree"].get("weight", 1.0))
        parts.append(Part(name="tree", weight=weight, score=value, evidence=clip(said)))
    if not any(part.weight for part in parts):
        raise specs.SpecError("all checks and commands hold on the untouched files: add one that does not")
    paths = state.touched(outcome)
    stray = [] if "tree" in spec else state.strays(paths, checks, ignore)
    broken = state.broken(paths, spec.get("protected", []))
    gate = (held / gates if gates else 1.0) * len(parts) / (len(parts) + len(stray))
    if broken or not outcome.diff.complete or outcome.cause in state.OUR_KILLS:
        # A command that had to be stopped did not do the task, whatever stands there at that moment.
        gate = 0.0
    notes = [ended(outcome)]
    if stray:
        notes.append(f"{len(stray)} stray: {', '.join(map(state.shown, stray[:3]))}")
    if broken:
        notes.append(f"protected: {', '.join(map(state.shown, broken[:3]))}")
    return scored(parts, gate=gate, evidence=clip("; ".join(notes)))
