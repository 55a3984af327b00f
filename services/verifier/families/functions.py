"""Python values against wanted values. Invariant: a case passes only if its value, serialised, equals the wanted one out here."""

from __future__ import annotations

from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.families import credit, driven
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, is_plain, parse_json, same, shown

KINDS = ("expression", "function")
SETTINGS = ("tolerance", "widen")


def check(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`entry`, `params`, `cases` [{`args`, `want`, `weight`}].

    Settings: `tolerance` between floats, default 0; `widen`: an integer may stand for an equal float. Raises SpecError.
    """
    specs.number(settings.get("tolerance", 0.0), "verifier.settings.tolerance", low=0.0, high=1.0)
    for index, name in enumerate(specs.texts(spec.get("params", []), "spec.params")):
        if not name.isidentifier():
            raise specs.SpecError(f"spec.params[{index}] is {name!r}, not a name")
    if not specs.text(spec.get("entry"), "spec.entry").isidentifier():
        raise specs.SpecError(f"spec.entry is {spec['entry']!r}, not a name")
    for index, case in enumerate(specs.items(spec.get("cases"), "spec.cases", least=1)):
        where = f"spec.cases[{index}]"
        specs.table(case, where)
        specs.items(case.get("args"), f"{where}.args")
        credit.check_weight(case, where)
        if "want" not in case:
            raise specs.SpecError(f"{where}.want is missing")
        if not is_plain([case["args"], case["want"]]):
            raise specs.SpecError(f"{where} holds something that is not plain JSON data")


def verify(task: Task, settings: dict[str, Any], limits: Limits, answer: str, jail: Jail) -> Verdict:
    """Build (a gate), then the credit for cases passed."""
    spec = task.spec
    cases = spec["cases"]
    one_each = settings.get("isolate") == "jail"
    groups = [[index] for index in range(len(cases))] if one_each else [list(range(len(cases)))]
    each = driven.share(limits, len(cases)) if one_each else limits
    faults = [""] * len(cases)
    built = True
    why = ""
    for group in groups:
        given = [cases[index]["args"] for index in group]
        instructions = driven.order(
            spec["kind"], given, each, settings, params=spec.get("params", []), entry=spec["entry"]
        )
        outcome = driven.run(jail, answer, instructions, each)
        if outcome.cause == "infra":
            return infra(clip(f"the jail failed: {outcome.detail}"))
        report = driven.read(outcome, len(group))
        if not report.built:
            built, why = False, why or report.fault or f"not compiled ({report.cause})"
        for at, index in enumerate(group):
            faults[index] = _fault(report.records.get(at), cases[index]["want"], report.cause, settings)
        if not built:
            faults = [fault or "not built" for fault in faults]
            break
    build = Part(name="build", weight=0.0, score=float(built), evidence=clip(why))
    names = [f"case {index}" for index in range(len(cases))]
    return scored((build, credit.part(faults, credit.weights(cases), settings, names)), gate=float(built))


def _fault(record: driven.Record | None, want: Any, cause: str, settings: dict[str, Any]) -> str:
    """Why the case did not pass; empty if it did."""
    if record is None or record.kind != "V":
        return driven.said(record, cause)
    try:
        value = parse_json(record.payload)
    except ValueFormatError as error:
        return f"answered no plain data: {error}"
    tolerance, widen = float(settings.get("tolerance", 0.0)), bool(settings.get("widen", False))
    if same(value, want, tolerance=tolerance, widen=widen):
        return ""
    return f"got {shown(value)}, expected {shown(want)}"
