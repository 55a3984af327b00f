"""A program against inputs and outputs. Invariant: what it must print stays out here; how it ended is what the kernel says.

It is built in a jail of its own with limits of its own, and only the one file that the build made goes on, read-only, into
the jail that runs the cases; each case has a folder, a process and an input of its own, or, isolated, a jail.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, StageResult, Verdict, clip, infra, scored
from services.verifier import specs
from services.verifier.families import credit, driven, stdio
from services.verifier.families.languages import Language, language
from services.verifier.jail import FileEntry, Jail, Job, JobError, Limits, Outcome

KINDS = ("program",)
SETTINGS = ("build", *stdio.SETTINGS)
LIMITS = {"wall_s": 20.0, "cpu_s": 10.0, "memory_mib": 512, "pids": 64, "disk_mib": 64}
"""Of the build, unless the card's `build` table says otherwise."""
BUILD_RUNS = 8
"""Wall limits of the card that a build may take at most: bounds the time of a verdict."""
SPARE = 4096
MAX_OUTPUT = 16 << 20
MAX_ARTEFACT = 64 << 20
TEMPORARY = re.compile(r"/cc\w{6}(?=\.)")
AT = "p"
"""Folder under /t of what is run."""


def check(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`language`, `cases` [{`stdin`, `stdout`, `args`, `exit`, `weight`}]: text, text, texts, 0 and 1 if absent.

    Settings: those of `stdio`, and `build`, limits of the build. Raises SpecError.
    """
    specs.keys(spec, ("kind", "language", "cases"), "spec")
    language(spec.get("language"))
    stdio.check(settings)
    build_limits(settings, Limits(wall_s=3600.0))
    for index, case in enumerate(specs.items(spec.get("cases"), "spec.cases", least=1)):
        where = f"spec.cases[{index}]"
        specs.keys(specs.table(case, where), ("stdin", "stdout", "args", "exit", "weight"), where)
        specs.text(case.get("stdin", ""), f"{where}.stdin", empty=True)
        specs.text(case.get("stdout"), f"{where}.stdout", empty=True)
        for at, each in enumerate(specs.items(case.get("args", []), f"{where}.args")):
            if "\0" in specs.text(each, f"{where}.args[{at}]", empty=True):
                raise specs.SpecError(f"{where}.args[{at}] holds a NUL character")
        if specs.whole(case.get("exit", 0), f"{where}.exit") > 255:  # noqa: PLR2004 (one byte)
            raise specs.SpecError(f"{where}.exit must be at most 255")
        credit.check_weight(case, where)
    if not all(case["stdout"].split() or case.get("exit", 0) for case in spec["cases"]):
        raise specs.SpecError("a case of spec.cases wants nothing printed and exit 0: any program passes it")
    if _cap(spec["cases"]) * len(spec["cases"]) > MAX_OUTPUT:
        raise specs.SpecError(
            f"spec.cases want more output than the {MAX_OUTPUT} bytes that a run may report"
        )


def build_limits(settings: dict[str, Any], limits: Limits) -> Limits:
    """Limits of the build. Raises SpecError."""
    table = specs.table(settings.get("build", {}), "verifier.settings.build")
    specs.keys(table, tuple(LIMITS), "verifier.settings.build")
    given = {**LIMITS, **table}
    for name in LIMITS:
        specs.number(given[name], f"verifier.settings.build.{name}", low=0.01, high=86_400.0)
    try:
        return Limits(
            wall_s=min(float(given["wall_s"]) * driven.SLACK, BUILD_RUNS * limits.wall_s),
            cpu_s=float(given["cpu_s"]),
            memory_bytes=int(given["memory_mib"]) << 20,
            pids=int(given["pids"]),
            disk_bytes=int(given["disk_mib"]) << 20,
            file_bytes=int(given["disk_mib"]) << 20,
        )
    except JobError as error:
        raise specs.SpecError(f"verifier.settings.build: {error}") from error


def verify(task: Task, settings: dict[str, Any], limits: Limits, answer: str, jail: Jail) -> Verdict:
    """Build (a gate), then the credit for cases passed; stages `lay out`, `build`, `test`."""
    spec = task.spec
    found, cases = language(spec["language"]), spec["cases"]
    entry, why = FileEntry(answer.encode("utf-8"), 0o444), ""
    if found.build:
        outcome = _build(found, answer, build_limits(settings, limits), jail)
        if outcome.cause == "infra":
            return infra(clip(f"the jail failed: {outcome.detail}"))
        content = outcome.snapshot.read("program") if outcome.snapshot is not None else None
        if outcome.cause != "exit" or outcome.exit_code:
            why = f"the build failed ({driven.ended(outcome)}): {_first_line(outcome.stderr)}"
        elif content is None or len(content) > MAX_ARTEFACT:
            why = "the build left no program"
        else:
            entry = FileEntry(content, 0o555)
    faults = ["not built"] * len(cases)
    if not why:
        one_each = settings.get("isolate") == "jail"
        each = driven.share(limits, len(cases)) if one_each else limits
        for group in [[index] for index in range(len(cases))] if one_each else [list(range(len(cases)))]:
            given = [cases[index] for index in group]
            outcome = _run(found, entry, given, _cap(cases), settings, each, jail)
            if outcome.cause == "infra":
                return infra(clip(f"the jail failed: {outcome.detail}"))
            report = driven.read(outcome, len(group))
            if not report.built:
                why = report.fault or f"not started ({report.cause})"
                break
            for at, index in enumerate(group):
                faults[index] = _fault(report.records.get(at), cases[index], report.cause, settings)
    return _verdict(faults, why, cases, settings)


def _cap(cases: list[dict[str, Any]]) -> int:
    """Bytes that one case may print: the same for all, so that it says little of what one should."""
    return 2 * max(len(case["stdout"].encode("utf-8")) for case in cases) + SPARE


def _build(found: Language, answer: str, limits: Limits, jail: Jail) -> Outcome:
    files = {found.source: FileEntry(answer.encode("utf-8"))}
    # A source that includes one of the compiler's own outputs would wait for itself up to the wall limit.
    return jail.run(Job(argv=found.build, files=files, limits=limits, keep=True, reopen=False))


def _run(
    found: Language,
    entry: FileEntry,
    cases: list[dict[str, Any]],
    cap: int,
    settings: dict[str, Any],
    limits: Limits,
    jail: Jail,
) -> Outcome:
    name = "program" if found.build else found.source
    path = f"/t/{AT}/{name}"
    order = driven.head(
        len(cases),
        limits,
        settings,
        argv=[*found.run, path],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "TZ": "UTC"},
        check=path if found.source.endswith(".py") else "",
    )
    order["cap"] = cap
    given = [
        (list(case.get("args", [])), case.get("stdin", "").encode("utf-8", "surrogateescape"))
        for case in cases
    ]
    room = max(limits.output_bytes, len(cases) * (cap + 64) + SPARE)
    return driven.trusted(
        jail,
        ("kit", "programs"),
        "programs",
        driven.packed(order, given),
        replace(limits, output_bytes=room),
        {},
        {f"{AT}/{name}": entry},
    )


def _fault(record: driven.Record | None, case: dict[str, Any], cause: str, settings: dict[str, Any]) -> str:
    """Why the case did not pass; empty if it did."""
    if record is None or record.kind != "O" or len(record.payload) < 4:  # noqa: PLR2004 (the wait status)
        return "printed too much" if record and record.kind == "L" else driven.said(record, cause)
    status = int.from_bytes(record.payload[:4], "big")
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    code = os.waitstatus_to_exitcode(status)
    if code != case.get("exit", 0):
        return f"exit {code}, expected {case.get('exit', 0)}"
    return stdio.difference(record.payload[4:], case["stdout"], settings)


def _first_line(raw: bytes) -> str:
    """What a compiler says first, without the random names of its temporary files: a verdict must not hang on them."""
    text = TEMPORARY.sub("/cc", raw.decode("utf-8", "replace"))
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "nothing said")


def _verdict(faults: list[str], why: str, cases: list[dict[str, Any]], settings: dict[str, Any]) -> Verdict:
    built = not why
    build = Part(name="build", weight=0.0, score=float(built), evidence=clip(why))
    tests = credit.part(
        faults, credit.weights(cases), settings, [f"case {index}" for index in range(len(cases))]
    )
    return scored((build, tests), gate=float(built), stages=stages(built, why, tests))


def stages(built: bool, why: str, tests: Part) -> tuple[StageResult, ...]:  # noqa: FBT001 (what became of the build)
    """`lay out`, `build`, `test`: the first that failed is the one to look at."""
    test = StageResult(
        name="test",
        weight=1.0,
        score=tests.score if built else 0.0,
        passed=built and tests.score == 1.0,
        evidence=tests.evidence if built else "",
    )
    return (
        StageResult(name="lay out", weight=0.0, score=1.0, passed=True),
        StageResult(name="build", weight=0.0, score=float(built), passed=built, evidence=clip(why)),
        test,
    )
