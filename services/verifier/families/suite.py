"""A pytest suite against an answer of one file. Invariant: tests and answer never share a process, nor see each other's files.

In a jail of its own a trusted runner holds the tests in memory and the report; the answer lives in another process, forked
before the tests came, and the tests call it through a stand-in module (inside/remote.py) that lets only data of exact types
through. Which tests there are is fixed by the task: one that is missing, skipped or reported twice is not passed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.families import credit, driven, prepared, programs
from services.verifier.jail import FileEntry, Jail, JobError, Limits
from services.verifier.jail.job import check_path

KINDS = ("suite",)
SETTINGS: tuple[str, ...] = ()
PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging")
MODULES = (
    "kit", "wire", "kept", "serve", "host", "line", "remote", "stand", "errors", "way", "names", "records", "suite",
)  # fmt: skip


def check(spec: dict[str, Any], settings: dict[str, Any]) -> None:  # noqa: ARG001 (every kind has the same signature)
    """`path`, file of the answer, `NAME.py`; `tests` {path: text}; `ids` [node id, or {`id`, `weight`}].

    `prefix`, if there is one, is text laid before the answer. No settings of its own. Raises SpecError.
    """
    specs.keys(spec, ("kind", "path", "tests", "ids", "prefix"), "spec")
    path = specs.text(spec.get("path"), "spec.path")
    name, dot, ending = path.partition(".")
    if not name.isidentifier() or dot + ending != ".py":
        raise specs.SpecError(f"spec.path is {path!r}: give NAME.py, the tests import NAME")
    specs.text(spec.get("prefix", ""), "spec.prefix", empty=True)
    tests = specs.table(spec.get("tests"), "spec.tests")
    for where, text in tests.items():
        try:
            check_path(where)
        except JobError as error:
            raise specs.SpecError(f"spec.tests: {error}") from error
        if where in (path, "pytest.ini", "conftest.py") or where.endswith("/conftest.py"):
            raise specs.SpecError(f"spec.tests must not hold {where}")
        specs.text(text, f"spec.tests[{where!r}]")
    names = [each["id"] for each in _ids(spec)]
    for index, each in enumerate(names):
        if each.partition("::")[0] not in tests or "::" not in each:
            raise specs.SpecError(f"spec.ids[{index}] is {each!r}: its file is not in spec.tests")
    if len(set(names)) != len(names):
        raise specs.SpecError("spec.ids names a test twice")
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise specs.SpecError(f"spec.kind 'suite' needs {missing[0]}: install pytest on every verifier")


def _ids(spec: dict[str, Any]) -> list[dict[str, Any]]:
    made = []
    for index, each in enumerate(specs.items(spec.get("ids"), "spec.ids", least=1)):
        where = f"spec.ids[{index}]"
        table = {"id": each} if isinstance(each, str) else specs.table(each, where)
        specs.keys(table, ("id", "weight"), where)
        specs.text(table.get("id"), f"{where}.id")
        credit.check_weight(table, where)
        made.append(table)
    return made


def verify(task: Task, settings: dict[str, Any], limits: Limits, answer: str, jail: Jail) -> Verdict:
    """Build (a gate), then the credit for tests passed; stages `lay out`, `build`, `test`."""
    spec, ids = task.spec, _ids(task.spec)
    names = [each["id"] for each in ids]
    path = spec["path"]
    order = driven.head(len(ids), limits, settings, path=path, module=path.partition(".")[0])
    outcome = driven.trusted(
        jail,
        MODULES,
        "suite",
        driven.packed(order, [(dict(spec["tests"]), names)]),
        limits,
        {path: FileEntry((spec.get("prefix", "") + answer).encode("utf-8"))},
        {"pytest.zip": prepared.archive(*PACKAGES)},
    )
    if outcome.cause == "infra":
        return infra(clip(f"the jail failed: {outcome.detail}"))
    report = driven.read(outcome, len(ids))
    why = "" if report.built else report.fault or f"the tests did not start ({report.cause})"
    faults = [_fault(report.records.get(place), report.cause) for place in range(len(ids))]
    if why:
        faults = ["not built"] * len(ids)
    build = Part(name="build", weight=0.0, score=float(not why), evidence=clip(why))
    tests = credit.part(faults, credit.weights(ids), settings, names)
    return scored((build, tests), gate=float(not why), stages=programs.stages(not why, why, tests))


def _fault(record: driven.Record | None, cause: str) -> str:
    """Why the test did not pass; empty if it did."""
    if record is None:
        return f"not reported ({cause})"
    if record.kind == "P":
        return ""
    return record.payload.decode("utf-8", "replace") or "failed"
