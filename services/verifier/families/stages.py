"""A long-horizon task, one command a stage. Invariant: a stage runs on the last good state and commits only if it passed.

Rule: stage n is answer line n. It passes if all its checks hold after its command and no protected path was touched; then
its files become the last good state. Otherwise they are dropped and the next stage starts from the state before
(`on_failure = "continue"`, the default) or all later stages fail (`"stop"`). A stage whose checks held on the untouched
files and still held when it started earns nothing. Score: the weighted share of passed stages.
"""

from __future__ import annotations

from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, StageResult, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import state
from services.verifier.families.driven import ended
from services.verifier.families.terminal import ENV, command
from services.verifier.jail import Jail, Job, Limits, Outcome, Snapshot

MAX_STAGES = 64


def runs(spec: dict[str, Any]) -> int:
    """Jail runs that one answer may take."""
    stages = spec.get("stages")
    return min(MAX_STAGES, len(stages)) if isinstance(stages, list) else 1


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`files`, `protected`, `stages` [{`name`, `weight`, `checks`}], at least one. Setting `on_failure`. Raises SpecError."""
    specs.keys(settings, ("on_failure",), "verifier.settings")
    specs.choice(settings.get("on_failure", "continue"), ("continue", "stop"), "verifier.settings.on_failure")
    specs.keys(spec, ("files", "stages", "protected"), "spec")
    state.check_files(spec)
    stages = specs.items(spec.get("stages"), "spec.stages", least=1)
    if len(stages) > MAX_STAGES:
        raise specs.SpecError(f"spec.stages has {len(stages)} stages, {MAX_STAGES} are allowed")
    for index, stage in enumerate(stages):
        where = f"spec.stages[{index}]"
        specs.keys(specs.table(stage, where), ("name", "weight", "checks"), where)
        specs.text(stage.get("name"), f"{where}.name")
        specs.number(stage.get("weight", 1.0), f"{where}.weight", low=1e-6, high=1e6)
        state.check_checks(stage.get("checks"), f"{where}.checks")
    untouched = state.initial(spec.get("files", {}))
    if all(state.holds(check, untouched) for check in stages[0]["checks"]):
        raise specs.SpecError(
            "spec.stages[0].checks all hold before any command has run: add one that does not"
        )


class _Progress:
    """The last good state of one answer; owns its snapshot."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.untouched = self.good = state.initial(files)
        self.snapshot: Snapshot | None = None

    def run(self, argv: tuple[str, ...], limits: Limits, jail: Jail) -> Outcome:
        files = state.entry_files(self.files) if self.snapshot is None else {}
        return jail.run(Job(argv=argv, files=files, env=ENV, limits=limits, base=self.snapshot, keep=True))

    def commit(self, outcome: Outcome, final: state.State) -> None:
        old, self.snapshot, self.good = self.snapshot, outcome.snapshot, state.State(final.entries)
        if old is not None:
            old.close()

    def close(self) -> None:
        if self.snapshot is not None:
            self.snapshot.close()


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule, one StageResult a stage. Raises UnusableAnswerError."""
    lines = decode(submission).strip("\n").split("\n")
    spec = task.spec
    progress = _Progress(spec.get("files", {}))
    stages: list[dict[str, Any]] = spec["stages"]
    results: list[StageResult] = []
    for line in lines[: len(stages)]:
        if line.strip():
            command(line)
    try:
        for index, stage in enumerate(stages):
            if results and not results[-1].passed and settings.get("on_failure", "continue") == "stop":
                results.append(_failed(stage, "skipped", "an earlier stage failed"))
                continue
            line = lines[index] if index < len(lines) else ""
            if not line.strip():
                results.append(_failed(stage, "missing", "the answer has no line for this stage"))
                continue
            outcome = progress.run(command(line), limits, jail)
            if outcome.cause == "infra":
                return infra(clip(f"the jail failed in stage {stage['name']}: {outcome.detail}"))
            results.append(_judge(stage, spec.get("protected", []), outcome, progress))
    finally:
        progress.close()
    parts = [
        Part(name=clip(r.name, 80), weight=r.weight, score=r.score, evidence=r.evidence) for r in results
    ]
    extra = max(0, len(lines) - len(stages))
    return scored(parts, stages=results, evidence=f"{extra} lines beyond the stages" if extra else "")


def _failed(stage: dict[str, Any], cause: str, evidence: str) -> StageResult:
    weight = float(stage.get("weight", 1.0))
    return StageResult(
        name=stage["name"], weight=weight, score=0.0, passed=False, cause=cause, evidence=clip(evidence)
    )


def _judge(stage: dict[str, Any], protected: list[str], outcome: Outcome, progress: _Progress) -> StageResult:
    """Decide one stage and commit it, or drop what it did."""
    checks = stage["checks"]
    final = state.after(progress.good, outcome)
    wrong = [state.label(check) for check in checks if not state.holds(check, final)]
    broken = state.broken(state.touched(outcome), protected)
    idle = all(state.holds(c, progress.untouched) and state.holds(c, progress.good) for c in checks)
    snapshot = outcome.snapshot if outcome.diff.complete else None
    stopped = outcome.cause in state.OUR_KILLS
    if wrong or broken or idle or stopped or snapshot is None:
        if outcome.snapshot is not None:
            outcome.snapshot.close()
        why = f"not so: {', '.join(wrong)}" if wrong else f"protected: {', '.join(broken)}" if broken else ""
        return _failed(
            stage,
            ended(outcome),
            why
            or (
                "it had to be stopped"
                if stopped
                else "nothing was left to do"
                if idle
                else "its files could not be kept"
            ),
        )
    progress.commit(outcome, final)
    return StageResult(
        name=stage["name"],
        weight=float(stage.get("weight", 1.0)),
        score=1.0,
        passed=True,
        cause=ended(outcome),
        snapshot=snapshot.digest,
    )
