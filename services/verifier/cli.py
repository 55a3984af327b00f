"""`temper verify` and `temper domains validate`. Invariant: with --json exactly one document goes to standard output.

Everything else goes to standard error. Exit status: 0 done, 1 the answer is no (a domain that is not sound, verdicts that
disagree), 2 wrong use, 3 something failed.
"""

# ruff: noqa: T201 (a command line prints)
from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from schemas.cards import Card
from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.runtime.catalog import Catalog
from services.runtime.errors import BadInput, one_line
from services.verifier import cards, families, sizing, validate
from services.verifier.jail import JailUnavailable
from services.verifier.pool import Judged, Pool
from services.verifier.settings import SLOTS
from services.verifier.specs import SpecError

DONE, NO, WRONG, FAILED = 0, 1, 2, 3
DOMAINS = ("domains",)


def main(argv: list[str]) -> int:
    """Run `verify ...` or `validate ...`; returns the exit status."""
    arguments = parser().parse_args(argv)
    name = "verify" if arguments.command == "verify" else "domains validate"
    try:
        return int(arguments.run(arguments))
    except (BadInput, SpecError) as error:
        print(f"temper {name}: {error}", file=sys.stderr)
        return WRONG
    except JailUnavailable as error:
        print(f"temper {name}: {error}", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"temper {name}: {one_line(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The two commands' arguments."""
    top = argparse.ArgumentParser(prog="temper", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser("verify", help="the verdict on one answer", allow_abbrev=False)
    one.add_argument(
        "--task", required=True, metavar="TASK.json", help="a task, as `temper domains sample` writes it"
    )
    one.add_argument(
        "--answer", required=True, metavar="FILE", help="the answer's bytes; - is standard input"
    )
    one.add_argument(
        "--repeat", type=count, default=0, metavar="N", help="judge it N times and compare the verdicts"
    )
    one.set_defaults(run=verify)
    many = commands.add_parser(
        "validate", help="whether domains are sound; needs no model", allow_abbrev=False
    )
    many.add_argument(
        "names", nargs="*", metavar="DOMAIN", help="names or glob patterns; all if none is given"
    )
    many.set_defaults(run=check)
    for command in (one, many):
        command.add_argument("--json", action="store_true", help="one JSON document on standard output")
        command.add_argument(
            "--paths", action="append", metavar="FOLDER", help="where the cards are (default: domains)"
        )
    return top


def count(text: str) -> int:
    """A number of times, at least once. Raises argparse.ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of times: give 1 or more")
    return int(text)


def read(path: str) -> bytes:
    """Bytes of a file; - is standard input. Raises BadInput."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def read_task(path: str) -> Task:
    """The one task in a file: a Task, a submission `{"task": {...}}`, or a line with further keys such as `gold`.

    Raises:
        BadInput: unreadable, or not one task.
    """
    raw = read(path)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        hint = "; give a file with one task" if raw.strip().count(b"\n") else ""
        raise BadInput(f"{path}: not JSON: {error}{hint}") from error
    if isinstance(value, dict) and isinstance(value.get("task"), dict):
        value = value["task"]
    try:
        return msgspec.convert(value, Task)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: not a task: {error}") from error


def verify(arguments: argparse.Namespace) -> int:
    """One verdict, or as many as asked for."""
    task = read_task(arguments.task)
    catalog = Catalog.load(tuple(arguments.paths or DOMAINS))
    card = catalog.card(task.domain)
    try:
        cards.check(card)
    except SpecError as error:
        raise BadInput(f"{catalog.path(task.domain)}: {error}") from error
    families.family(card.verifier.family).check_spec(task.spec, card.verifier.settings)
    answer = read(arguments.answer)
    verdicts = asyncio.run(_judge(card, task, answer, max(1, arguments.repeat)))
    first = verdicts[0]
    document: dict[str, Any] = msgspec.to_builtins(first)
    if arguments.repeat:
        document["verdicts"] = [
            {"outcome": v.outcome, "score": v.score, "digest": v.digest} for v in verdicts
        ]
    disagreements = sum(verdict.digest != first.digest for verdict in verdicts)
    if arguments.repeat:
        document["disagreements"] = disagreements
    sys.stdout.write(
        msgspec.json.encode(document).decode() + "\n" if arguments.json else human(first, verdicts)
    )
    if any(verdict.outcome == "infra" for verdict in verdicts):
        return FAILED
    return NO if disagreements else DONE


def human(first: Verdict, verdicts: list[Verdict]) -> str:
    """A verdict in a few lines."""
    score = "none" if first.score is None else f"{first.score:.4f}"
    lines = [
        f"{first.outcome}  score {score}  {'passed' if first.passed else 'not passed'}  {first.evidence}".rstrip()
    ]
    lines += [
        f"  part  {p.name:<24} weight {p.weight:g}  score {p.score:.4f}  {p.evidence}".rstrip()
        for p in first.parts
    ]
    for stage in first.stages:
        state = stage.snapshot[:12] if stage.snapshot else "rolled back"
        lines.append(f"  stage {stage.name:<24} {stage.cause:<10} {state}  {stage.evidence}".rstrip())
    lines.append(f"digest {first.digest}")
    if len(verdicts) > 1:
        lines.append(
            f"{len(verdicts)} verdicts, {sum(v.digest != first.digest for v in verdicts)} disagree with the first"
        )
    return "\n".join(lines) + "\n"


async def _judge(card: Card, task: Task, answer: bytes, times: int) -> list[Verdict]:
    pool = Pool({card.name: card}, SLOTS, slots=min(times, sizing.slots(0, (card,))))
    await pool.start()
    try:
        judged: list[Judged] = await asyncio.gather(*(pool.judge(task, answer) for _ in range(times)))
    finally:
        await pool.close()
    return [each.verdict for each in judged]


def check(arguments: argparse.Namespace) -> int:
    """Validate domains."""
    catalog = Catalog.load(tuple(arguments.paths or DOMAINS), tuple(arguments.names or ("*",)), key="")
    reports = asyncio.run(_check(catalog))
    if arguments.json:
        sys.stdout.write(msgspec.json.encode({"domains": reports}).decode() + "\n")
    bad = [report for report in reports if not report.ok]
    print(f"{len(reports) - len(bad)} of {len(reports)} domains are sound", file=sys.stderr)
    return NO if bad or not reports else DONE


async def _check(catalog: Catalog) -> list[validate.Report]:
    pool = Pool(catalog.cards, SLOTS, slots=sizing.slots(0, catalog.cards.values()))
    await pool.start()
    reports = []
    try:
        for domain in catalog.cards:
            report = await validate.domain(catalog, domain, pool.judge)
            reports.append(report)
            mark = "ok  " if report.ok else "FAIL"
            print(
                f"{mark} {domain:<28} {report.seconds:6.1f} s  {'; '.join((*report.problems, *report.notes))}",
                file=sys.stderr,
                flush=True,
            )
    finally:
        await pool.close()
    return reports
