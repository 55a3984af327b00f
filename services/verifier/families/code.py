"""Code against tests: values of functions, outputs of programs, or a pytest suite.

Invariant: what is expected is compared where the candidate does not run, and a case passes only on a positive record of its
own. The kind is the task's (`spec.kind`): `expression`, `function` (functions.py), `program` (programs.py), `suite` (suite.py).
"""

from __future__ import annotations

from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier import specs
from services.verifier.answers import UnusableAnswerError, decode
from services.verifier.families import credit, driven, functions, programs, suite
from services.verifier.jail import Jail, Limits

OWN = ("case_s", "case_cpu_s", "isolate", "fence")
SETTINGS = (*OWN, *credit.SETTINGS)
ISOLATION = ("jail", "process", "none")
FENCE = "```"


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`kind`, and what that kind needs.

    Settings for all kinds: `credit`, `power` (credit.py); `case_s`, `case_cpu_s`, bounds of one case in seconds that it had a
    processor or waited of its own will; `isolate`: what each case gets, a "jail", a "process" (the default) or "none", where
    the cases of one answer share a process; `fence`: the answer is what stands in the first fenced block, if there is one.
    Raises SpecError.
    """
    kind = specs.choice(spec.get("kind"), (*functions.KINDS, *programs.KINDS, *suite.KINDS), "spec.kind")
    family = _module(kind)
    specs.keys(settings, (*SETTINGS, *family.SETTINGS), "verifier.settings")
    credit.check(settings)
    for key in ("case_s", "case_cpu_s"):
        specs.number(settings.get(key, 1.0), f"verifier.settings.{key}", low=0.01, high=3600.0)
    specs.choice(settings.get("isolate", "process"), ISOLATION, "verifier.settings.isolate")
    isolate = settings.get("isolate", "process")
    if (isolate == "none" and kind not in functions.KINDS) or (isolate != "process" and kind in suite.KINDS):
        raise specs.SpecError(
            f"verifier.settings.isolate = {isolate!r} has no meaning for spec.kind {kind!r}"
        )
    for key in ("fence", "widen"):
        if not isinstance(settings.get(key, False), bool):
            raise specs.SpecError(f"verifier.settings.{key} must be true or false")
    family.check(spec, settings)


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """The verdict of the task's kind. Raises UnusableAnswerError."""
    answer = decode(submission)
    if settings.get("fence", False):
        answer = unfenced(answer)
    verdict: Verdict = _module(task.spec["kind"]).verify(task, settings, limits, answer, jail)
    return verdict


def runs(spec: dict[str, Any]) -> int:
    """Wall limits that one answer may take, when the machine is busy and each case has a jail."""
    build = programs.BUILD_RUNS if spec.get("kind") in programs.KINDS else 0
    return driven.SLACK * (1 + driven.jails(len(spec.get("cases", ())))) + build


def unfenced(answer: str) -> str:
    """What stands in the first fenced block; the whole answer if it has none. Raises UnusableAnswerError for an empty one."""
    lines = answer.split("\n")
    opened = next((at for at, line in enumerate(lines) if line.lstrip().startswith(FENCE)), None)
    if opened is None:
        return answer
    closed = next(
        (at for at in range(opened + 1, len(lines)) if lines[at].lstrip().startswith(FENCE)), len(lines)
    )
    block = "\n".join(lines[opened + 1 : closed]) + "\n"
    if not block.strip():
        raise UnusableAnswerError("the answer's fenced block is empty")
    return block


def _module(kind: str) -> Any:
    if kind in functions.KINDS:
        return functions
    return programs if kind in programs.KINDS else suite
