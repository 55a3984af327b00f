"""Runs the in-jail driver and reads its report. Invariant: only well-formed frames with expected ids count, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.verifier.inside import source
from services.verifier.jail import FileEntry, Jail, Job, Limits, Outcome

PYTHON = "/usr/bin/python3"
# Not -I: it would ignore PYTHONHASHSEED, and the order of a set must be the same each time. The environment holds nothing
# else, site packages are off, and sys.path starts with the read-only trusted folder.
ARGV = (PYTHON, "-S", "-s", "-B", "/t/driver.py")
ENV = {"PYTHONHASHSEED": "0"}
TRUSTED = {name: FileEntry(source(name), 0o444) for name in ("driver.py", "cad.py")}
CAP = 16_384
KINDS = frozenset("BSVENTXL")


@dataclass(frozen=True, slots=True)
class Record:
    """What the driver said of one case: a kind of `driver.py` and its payload."""

    kind: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """`built`: the candidate compiled; `fault`: why not; `records`: case id -> its only record; `cause`: how the run ended."""

    built: bool
    fault: str
    records: dict[int, Record]
    cause: str


def order(kind: str, cases: Sequence[Any], limits: Limits, settings: dict[str, Any], **more: Any) -> bytes:
    """The driver's instructions as a Python literal."""
    cpu_s = float(settings.get("case_cpu_s", limits.cpu_s / 4))
    case_s = float(settings.get("case_s", limits.wall_s / 2))
    body = {
        "kind": kind,
        "cases": list(cases),
        "cap": CAP,
        "case_s": case_s,
        "case_cpu_s": cpu_s,
        "total_s": limits.wall_s * 0.9,
        **more,
    }
    return repr(body).encode("utf-8")


def run(jail: Jail, answer: str, instructions: bytes, limits: Limits) -> Outcome:
    """One jail run of the driver over the candidate's text."""
    return jail.run(
        Job(
            argv=ARGV,
            stdin=instructions,
            files={"answer.py": FileEntry(answer.encode("utf-8"))},
            trusted=TRUSTED,
            env=ENV,
            limits=limits,
            report=True,
        )
    )


def frames(report: bytes) -> list[tuple[str, int, bytes]]:
    """The complete frames at the head of `report`; reading stops at the first malformed one."""
    found = []
    at = 0
    while at + 9 <= len(report):
        kind = chr(report[at])
        case = int.from_bytes(report[at + 1 : at + 5], "big")
        size = int.from_bytes(report[at + 5 : at + 9], "big")
        if kind not in KINDS or at + 9 + size > len(report):
            break
        found.append((kind, case, report[at + 9 : at + 9 + size]))
        at += 9 + size
    return found


def read(outcome: Outcome, cases: int) -> Report:
    """The report of an outcome that is not `infra`: a case named twice or not expected has no record."""
    built, fault = False, ""
    records: dict[int, Record] = {}
    doubled: set[int] = set()
    for kind, case, payload in frames(outcome.report):
        if kind == "B":
            built = True
        elif kind == "S":
            fault = payload.decode("utf-8", "replace")
        elif case in records:
            doubled.add(case)
        else:
            records[case] = Record(kind, payload)
    kept = {case: record for case, record in records.items() if case < cases and case not in doubled}
    return Report(built=built and not fault, fault=fault, records=kept if built else {}, cause=ended(outcome))


def ended(outcome: Outcome) -> str:
    """How a run ended, in two words without a figure that varies."""
    if outcome.cause == "exit":
        return f"exit {outcome.exit_code}"
    if outcome.cause == "signal":
        return f"signal {outcome.signal}"
    return outcome.cause


def said(record: Record | None, cause: str) -> str:
    """A record that is no value, in words."""
    if record is None:
        return f"no answer ({cause})"
    name = record.payload.decode("utf-8", "replace")
    return {
        "E": f"raised {name}",
        "N": f"returned no plain data ({name})",
        "T": "ran out of time",
        "L": "answered too much",
    }.get(record.kind, "died without an answer")
