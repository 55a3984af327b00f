"""A solid against a reference. Invariant: what a model made is read as data out here; its code runs only in the jail.

Two kinds of spec. `operations` (the default): a script in the language of inside/cad.py, which in the jail only records
operations; the body is built and measured out here. Score: gate(a valid body) * (0.8 volume IoU + 0.2 bounding-box IoU);
passed from a volume IoU of 0.99.

`mesh`: a mesh file, written by a Python script in the jail or given as the answer's text (mesh_task.py). Never NaN.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import driven, mesh_task, solids
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, parse_json

if TYPE_CHECKING:
    from manifold3d import Manifold

PASSED = 0.99
KINDS = ("operations", "mesh")


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`kind`: "operations" or "mesh" (then mesh_task.check_spec). `want`: a script of the language; `align`: "none".

    Settings `case_s`, `case_cpu_s`. Raises SpecError.
    """
    if specs.choice(spec.get("kind", "operations"), KINDS, "spec.kind") == "mesh":
        mesh_task.check_spec(spec, settings)
        return
    specs.keys(settings, ("case_s", "case_cpu_s"), "verifier.settings")
    specs.keys(spec, ("kind", "want", "align"), "spec")
    specs.choice(spec.get("align", "none"), ("none",), "spec.align")
    try:
        _reference(specs.text(spec.get("want"), "spec.want"))
    except solids.SolidError as error:
        raise specs.SpecError(f"spec.want: {error}") from error


@lru_cache(maxsize=64)
def _reference(script: str) -> Manifold:
    return solids.build(solids.evaluate(script))


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the kind's rule. Raises UnusableAnswerError."""
    answer = decode(submission)
    if task.spec.get("kind") == "mesh":
        return mesh_task.verify(task, settings, limits, answer, jail)
    outcome = driven.run(jail, answer, driven.order("cad", [None], limits, settings), limits)
    if outcome.cause == "infra":
        return infra(clip(f"the jail failed: {outcome.detail}"))
    report = driven.read(outcome, 1)
    record = report.records.get(0)
    try:
        body = solids.build(parse_json(_drawn(record, report)))
    except (solids.SolidError, ValueFormatError) as error:
        return _verdict(solids.Measure(0.0, 0.0), 0.0, str(error))
    return _verdict(solids.compare(body, _reference(task.spec["want"])), 1.0, "")


def _drawn(record: driven.Record | None, report: driven.Report) -> bytes:
    """The recorded operations. Raises SolidError if the script gave none."""
    if record is None or record.kind != "V":
        raise solids.SolidError(report.fault or driven.said(record, report.cause))
    return record.payload


def _verdict(measure: solids.Measure, gate: float, evidence: str) -> Verdict:
    parts = (
        Part(name="valid", weight=0.0, score=gate, evidence=clip(evidence)),
        Part(name="iou", weight=0.8, score=measure.iou),
        Part(name="box", weight=0.2, score=measure.box_iou),
    )
    return scored(parts, gate=gate, passed=measure.iou >= PASSED)
