"""A long-horizon task as a state machine. Invariant: a stage runs on the last good state and commits only if it passed.

States: stage 1 .. n, done, stopped. An answer is a list of commands, one a line (or, with a `separator`, what stands between
lines equal to it). A stage takes the next one and runs it on the last good state. It passes if all its checks hold then, all
its own commands succeed on a frozen copy (commands.py) and no protected path was touched; then its files become the last
good state, a snapshot whose digest the result names. Otherwise they are dropped, and the stage takes the next command while
`max_attempts` (default 1) lasts; after that the next stage starts from the last good state (`on_failure = "continue"`, the
default) or all later stages fail ("stop"). A stage that held on the untouched files and still held when it started earns
nothing. A failed jail in any run makes the whole verdict `infra`. Score: the weighted share of passed stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, StageResult, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import commands, predicates, state
from services.verifier.families.commands import JailFaultError
from services.verifier.families.driven import ended
from services.verifier.families.terminal import ENV, command
from services.verifier.jail import Jail, Job, Limits, Outcome, Snapshot

MAX_STAGES = 64
MAX_ATTEMPTS = 8
STAGE = ("name", "weight", "checks", "commands", "limits", "protected", "max_attempts")
RUNS_A_COMMAND = 3
"""On what the stage left, on the untouched files and on the state it started in."""


def runs(spec: dict[str, Any]) -> int:
    """Jail runs that one answer may take."""
    stages = spec.get("stages")
    if not isinstance(stages, list):
        return 1
    return sum(_runs(stage) for stage in stages[:MAX_STAGES] if isinstance(stage, dict)) or 1


def _runs(stage: dict[str, Any]) -> int:
    attempts = stage.get("max_attempts", 1)
    most = min(MAX_ATTEMPTS, attempts) if isinstance(attempts, int) and attempts > 0 else 1
    return most * (1 + RUNS_A_COMMAND * commands.count(stage.get("commands")))


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`files`, `protected`, `trusted`, `stages` [{STAGE}], at least one. Settings `on_failure`, `separator`. Raises SpecError.

    A stage has `checks` or `commands` or both; its `limits` lower the card's for its command, its `protected` adds to the
    spec's.
    """
    specs.keys(settings, ("on_failure", "separator"), "verifier.settings")
    specs.choice(settings.get("on_failure", "continue"), ("continue", "stop"), "verifier.settings.on_failure")
    if "separator" in settings and "\n" in specs.text(settings["separator"], "verifier.settings.separator"):
        raise specs.SpecError("verifier.settings.separator must be one line")
    specs.keys(spec, ("files", "stages", "protected", "trusted"), "spec")
    state.check_files(spec)
    state.check_laid(spec.get("trusted", {}), "spec.trusted")
    stages = specs.items(spec.get("stages"), "spec.stages", least=1)
    if len(stages) > MAX_STAGES:
        raise specs.SpecError(f"spec.stages has {len(stages)} stages, {MAX_STAGES} are allowed")
    for index, stage in enumerate(stages):
        _check_stage(stage, f"spec.stages[{index}]")
    untouched = state.initial(spec.get("files", {}))
    if not stages[0].get("commands") and all(predicates.holds(c, untouched) for c in stages[0]["checks"]):
        raise specs.SpecError(
            "spec.stages[0].checks all hold before any command has run: add one that does not"
        )


def _check_stage(stage: Any, where: str) -> None:
    specs.keys(specs.table(stage, where), STAGE, where)
    specs.text(stage.get("name"), f"{where}.name")
    specs.number(stage.get("weight", 1.0), f"{where}.weight", low=1e-6, high=1e6)
    own = commands.count(stage.get("commands"))
    predicates.check_checks(
        stage.get("checks", [] if own else None), f"{where}.checks", least=0 if own else 1
    )
    commands.check_commands(stage.get("commands", []), f"{where}.commands")
    commands.check_limits(stage.get("limits", {}), f"{where}.limits")
    if specs.whole(stage.get("max_attempts", 1), f"{where}.max_attempts", least=1) > MAX_ATTEMPTS:
        raise specs.SpecError(f"{where}.max_attempts is more than {MAX_ATTEMPTS}")
    for index, path in enumerate(specs.texts(stage.get("protected", []), f"{where}.protected")):
        state.check_place(path, f"{where}.protected[{index}]")


class _Progress:
    """The last good state of one answer; owns its snapshot."""

    def __init__(self, spec: dict[str, Any], limits: Limits, jail: Jail) -> None:
        self.spec, self.limits, self.jail = spec, limits, jail
        self.files: dict[str, str] = spec.get("files", {})
        self.untouched = self.good = state.initial(self.files)
        self.snapshot: Snapshot | None = None

    def run(self, argv: tuple[str, ...], stage: dict[str, Any]) -> Outcome:
        """One attempt at a stage. Raises JailFaultError."""
        files = state.entry_files(self.files) if self.snapshot is None else {}
        limits = commands.lowered(self.limits, stage.get("limits", {}))
        outcome = self.jail.run(
            Job(argv=argv, files=files, env=ENV, limits=limits, base=self.snapshot, keep=True)
        )
        if outcome.cause == "infra":
            raise JailFaultError(f"the jail failed in stage {stage['name']}: {outcome.detail}")
        return outcome

    def failing(self, stage: dict[str, Any], start: Snapshot | None) -> list[str]:
        """Those of the stage's own commands that fail on `start` (None: the untouched files). Raises JailFaultError."""
        own = stage.get("commands", [])
        if not own:
            return []
        trusted = self.spec.get("trusted", {})
        results = commands.run(own, self.files if start is None else start, trusted, self.limits, self.jail)
        return [
            f"command {each['name']} ({result.evidence})"
            for each, result in zip(own, results, strict=True)
            if not result.passed
        ]

    def idle(self, stage: dict[str, Any]) -> bool:
        """Whether nothing was left to do: it held on the untouched files, and held when it started."""
        held = all(
            predicates.holds(c, at) for c in stage.get("checks", []) for at in (self.untouched, self.good)
        )
        return held and not self.failing(stage, None) and not self.failing(stage, self.snapshot)

    def commit(self, outcome: Outcome, final: state.State) -> None:
        """Make what a stage left the last good state."""
        old, self.snapshot = self.snapshot, outcome.snapshot
        self.good = state.State(final.entries, read=final.read)
        if old is not None:
            old.close()

    def close(self) -> None:
        """Forget the last good state."""
        if self.snapshot is not None:
            self.snapshot.close()


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule, one StageResult a stage. Raises UnusableAnswerError."""
    given = _commands(decode(submission), settings.get("separator"))
    stages: list[dict[str, Any]] = task.spec["stages"]
    most = sum(stage.get("max_attempts", 1) for stage in stages)
    for text in given[:most]:
        if text.strip():
            command(text)
    progress = _Progress(task.spec, limits, jail)
    left = iter(given)
    results: list[StageResult] = []
    try:
        for stage in stages:
            if results and not results[-1].passed and settings.get("on_failure", "continue") == "stop":
                results.append(_failed(stage, "skipped", "an earlier stage failed"))
            else:
                results.append(_stage(stage, left, progress))
    except JailFaultError as error:
        return infra(clip(str(error)))
    finally:
        progress.close()
    parts = [
        Part(name=clip(r.name, 80), weight=r.weight, score=r.score, evidence=r.evidence) for r in results
    ]
    extra = max(0, len(given) - most)
    unit = "lines" if settings.get("separator") is None else "commands"
    return scored(parts, stages=results, evidence=f"{extra} {unit} beyond the stages" if extra else "")


def _commands(text: str, separator: str | None) -> list[str]:
    """The commands of an answer, in order."""
    lines = text.strip("\n").split("\n")
    if separator is None:
        return lines
    made: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == separator:
            made.append([])
        else:
            made[-1].append(line)
    return ["\n".join(each) for each in made]


def _failed(stage: dict[str, Any], cause: str, evidence: str) -> StageResult:
    weight = float(stage.get("weight", 1.0))
    return StageResult(
        name=stage["name"], weight=weight, score=0.0, passed=False, cause=cause, evidence=clip(evidence)
    )


def _stage(stage: dict[str, Any], left: Iterator[str], progress: _Progress) -> StageResult:
    """Try a stage until it passes or its attempts are used up. Raises JailFaultError."""
    result = _failed(stage, "missing", "the answer has no line for this stage")
    for _ in range(stage.get("max_attempts", 1)):
        text = next(left, None)
        if text is None:
            return result
        if not text.strip():
            result = _failed(stage, "missing", "the answer has no line for this stage")
            continue
        result = _judge(stage, progress.run(command(text), stage), progress)
        if result.passed:
            break
    return result


def _judge(stage: dict[str, Any], outcome: Outcome, progress: _Progress) -> StageResult:
    """Decide one attempt and commit it, or drop what it did. Raises JailFaultError."""
    final = state.after(progress.good, outcome)
    snapshot = outcome.snapshot if outcome.diff.complete else None
    why = _why(stage, outcome, final, progress)
    if not why and snapshot is not None:
        failing = progress.failing(stage, snapshot)
        why = f"not so: {', '.join(failing)}" if failing else "nothing was left to do" * progress.idle(stage)
    if why or snapshot is None:
        if outcome.snapshot is not None:
            outcome.snapshot.close()
        return _failed(stage, ended(outcome), why or "its files could not be kept")
    progress.commit(outcome, final)
    return StageResult(
        name=stage["name"],
        weight=float(stage.get("weight", 1.0)),
        score=1.0,
        passed=True,
        cause=ended(outcome),
        snapshot=snapshot.digest,
    )


def _why(stage: dict[str, Any], outcome: Outcome, final: state.State, progress: _Progress) -> str:
    """Why an attempt failed, as far as its own run shows; "" if it did not."""
    wrong = [predicates.label(c) for c in stage.get("checks", []) if not predicates.holds(c, final)]
    if wrong:
        return f"not so: {', '.join(wrong)}"
    protected = [*progress.spec.get("protected", []), *stage.get("protected", [])]
    broken = state.broken(state.touched(outcome), protected)
    if broken:
        return f"protected: {', '.join(broken)}"
    return "it had to be stopped" if outcome.cause in state.OUR_KILLS else ""
