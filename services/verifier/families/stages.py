"""A long-horizon task as a state machine. Invariant: a stage runs on the last good state and commits only if it passed.

States: stage 1 .. n, done, stopped. An answer is a list of commands, one a line (or, with a `separator`, what stands between
lines equal to it). A stage takes the next one and runs it on the last good state. It passes if all its checks hold then, all
its own commands succeed on a frozen copy (commands.py) and no protected path was touched; then its files become the last
good state, a snapshot whose digest the result names. Otherwise they are dropped, and the stage takes the next command while
`max_attempts` (default 1) lasts; after that the next stage starts from the last good state (`on_failure = "continue"`, the
default) or all later stages fail ("stop"). A stage that held on the untouched files and still held when it started earns
nothing. A failed jail in any run makes the whole verdict `infra`. Score: the weighted share of passed stages.

`verify` goes all the way at once. The service goes stage by stage (`begin`, then course.py, then `conclude`), keeps each, and
goes on anywhere: the verdict is the same.
"""

from __future__ import annotations

from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import commands, predicates, state
from services.verifier.families.course import Course, JailFaultError
from services.verifier.families.terminal import command
from services.verifier.jail import Jail, Limits

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


def step_runs(spec: dict[str, Any]) -> int:
    """Jail runs that one stage of an answer may take."""
    stages = spec.get("stages")
    if not isinstance(stages, list):
        return 1
    return max((_runs(stage) for stage in stages[:MAX_STAGES] if isinstance(stage, dict)), default=1)


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
        _check_stage(stage, f"spec.stages[{index}]", spec.get("trusted", {}))
    untouched = state.initial(spec.get("files", {}))
    if not stages[0].get("commands") and all(predicates.holds(c, untouched) for c in stages[0]["checks"]):
        raise specs.SpecError(
            "spec.stages[0].checks all hold before any command has run: add one that does not"
        )


def _check_stage(stage: Any, where: str, trusted: dict[str, str]) -> None:
    specs.keys(specs.table(stage, where), STAGE, where)
    specs.text(stage.get("name"), f"{where}.name")
    specs.number(stage.get("weight", 1.0), f"{where}.weight", low=1e-6, high=1e6)
    own = commands.count(stage.get("commands"))
    predicates.check_checks(
        stage.get("checks", [] if own else None), f"{where}.checks", least=0 if own else 1
    )
    commands.check_commands(stage.get("commands", []), f"{where}.commands", trusted)
    commands.check_limits(stage.get("limits", {}), f"{where}.limits")
    if specs.whole(stage.get("max_attempts", 1), f"{where}.max_attempts", least=1) > MAX_ATTEMPTS:
        raise specs.SpecError(f"{where}.max_attempts is more than {MAX_ATTEMPTS}")
    for index, path in enumerate(specs.texts(stage.get("protected", []), f"{where}.protected")):
        state.check_place(path, f"{where}.protected[{index}]")


def begin(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Course:
    """The answer before its first stage. Raises UnusableAnswerError."""
    given = _commands(decode(submission), settings.get("separator"))
    for text in given[: _most(task.spec)]:
        if text.strip():
            command(text)
    stop = settings.get("on_failure", "continue") == "stop"
    return Course(task.spec, limits, given, jail, stop=stop)


def conclude(course: Course, settings: dict[str, Any]) -> Verdict:
    """Score of the module's rule, one StageResult a stage, of an answer that has been through all stages."""
    parts = [
        Part(name=clip(r.name, 80), weight=r.weight, score=r.score, evidence=r.evidence)
        for r in course.results
    ]
    extra = max(0, len(course.given) - _most(course.spec))
    unit = "lines" if settings.get("separator") is None else "commands"
    return scored(parts, stages=course.results, evidence=f"{extra} {unit} beyond the stages" if extra else "")


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """All stages in one go, nothing kept. Raises UnusableAnswerError."""
    course = begin(task, settings, limits, submission, jail)
    try:
        while not course.finished:
            course.advance()
        return conclude(course, settings)
    except JailFaultError as error:
        return infra(clip(str(error)))
    finally:
        course.close()


def _most(spec: dict[str, Any]) -> int:
    """Commands that the stages may take."""
    return sum(stage.get("max_attempts", 1) for stage in spec["stages"])


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
