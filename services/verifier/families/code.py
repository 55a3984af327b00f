"""Python code against test cases. Invariant: a case passes only if its value, serialised, equals the wanted one out here."""

from __future__ import annotations

from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import driven
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, is_plain, parse_json, same, shown

SETTINGS = ("credit", "tolerance", "case_s", "case_cpu_s")
CREDITS = ("rate", "all")


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`entry`, `kind` ("expression" | "function"), `params`, `cases` [{`args`, `want`}].

    Settings: `credit` "rate" (share of cases passed, the default) or "all"; `tolerance` between floats, default 0.
    Raises SpecError.
    """
    specs.keys(settings, SETTINGS, "verifier.settings")
    specs.choice(settings.get("credit", "rate"), CREDITS, "verifier.settings.credit")
    specs.number(settings.get("tolerance", 0.0), "verifier.settings.tolerance", low=0.0, high=1.0)
    for key in ("case_s", "case_cpu_s"):
        specs.number(settings.get(key, 1.0), f"verifier.settings.{key}", low=0.01, high=3600.0)
    specs.choice(spec.get("kind"), ("expression", "function"), "spec.kind")
    for index, name in enumerate(specs.texts(spec.get("params", []), "spec.params")):
        if not name.isidentifier():
            raise specs.SpecError(f"spec.params[{index}] is {name!r}, not a name")
    if not specs.text(spec.get("entry"), "spec.entry").isidentifier():
        raise specs.SpecError(f"spec.entry is {spec['entry']!r}, not a name")
    for index, case in enumerate(specs.items(spec.get("cases"), "spec.cases", least=1)):
        where = f"spec.cases[{index}]"
        specs.table(case, where)
        specs.items(case.get("args"), f"{where}.args")
        if "want" not in case:
            raise specs.SpecError(f"{where}.want is missing")
        if not is_plain([case["args"], case["want"]]):
            raise specs.SpecError(f"{where} holds something that is not plain JSON data")


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Build (a gate), then the share of cases passed. Raises UnusableAnswerError."""
    answer = decode(submission)
    spec = task.spec
    cases = spec["cases"]
    given = [case["args"] for case in cases]
    instructions = driven.order(
        spec["kind"], given, limits, settings, params=spec.get("params", []), entry=spec["entry"]
    )
    outcome = driven.run(jail, answer, instructions, limits)
    if outcome.cause == "infra":
        return infra(clip(f"the jail failed: {outcome.detail}"))
    report = driven.read(outcome, len(cases))
    why = "" if report.built else report.fault or f"not compiled ({report.cause})"
    build = Part(name="build", weight=0.0, score=float(report.built), evidence=clip(why))
    failures = []
    for index, case in enumerate(cases):
        fault = _fault(
            report.records.get(index), case["want"], report.cause, float(settings.get("tolerance", 0.0))
        )
        if fault:
            failures.append(f"case {index}: {fault}")
    rate = (len(cases) - len(failures)) / len(cases)
    score = rate if settings.get("credit", "rate") == "rate" else float(rate == 1.0)
    evidence = f"{len(cases) - len(failures)} of {len(cases)} cases" + (
        f"; {failures[0]}" if failures else ""
    )
    tests = Part(name="tests", weight=1.0, score=score if report.built else 0.0, evidence=clip(evidence))
    return scored((build, tests), gate=float(report.built))


def _fault(record: driven.Record | None, want: Any, cause: str, tolerance: float) -> str:
    """Why the case did not pass; empty if it did."""
    if record is None or record.kind != "V":
        return driven.said(record, cause)
    try:
        value = parse_json(record.payload)
    except ValueFormatError as error:
        return f"answered no plain data: {error}"
    return "" if same(value, want, tolerance=tolerance) else f"got {shown(value)}, expected {shown(want)}"
