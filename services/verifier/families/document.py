"""Fields taken out of a document. Invariant: a field counts if its typed value equals the wanted one; invented fields cost.

Score of `fields` and `tables`: F1 over values, micro; a value is right to the degree its field is (1 or 0, or ANLS of at
least 0.5 for text where `partial` is on). Score of a nested `answer`: ANLS* (anls.py). Missing, null and empty are three things.
"""

# ruff: noqa: ARG001 (every family has the same signature)
from __future__ import annotations

import re
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, invalid, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import anls, fields, tables, typed
from services.verifier.families.edit import Work
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, parse_json, shown

SYNTAXES = ("json", "pairs", "value")
FINDS = ("all", "last_number")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w%]|[.,]\d)")
"""One that stands by itself: no part of a name, of a date or of a longer number."""
MAX_NUMBERS = 5
"""Numbers in a sentence whose last one is taken: a question of two said again, a step, and the answer."""
MAX_FIELDS = 256
SHOWN = 32
"""Parts shown at most for the keys of a nested answer."""


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """What is wanted: `fields` {name: {`type`, `want`, options}} and `tables` {name: {`columns`, `rows`}}, or a nested `answer`.

    `syntax` "json" | "pairs" | "value"; tables and nested answers are JSON. Settings: `partial` (text by ANLS), `syntax`
    (default of the spec's), `date_order` "dmy" (default) or "mdy", and `find` "all" (default: the whole answer is the value)
    or "last_number", for models that answer in a sentence: one with more than MAX_NUMBERS numbers is no answer. Raises SpecError.
    """
    specs.keys(settings, ("partial", "syntax", "date_order", "find"), "verifier.settings")
    specs.choice(settings.get("find", "all"), FINDS, "verifier.settings.find")
    if not isinstance(settings.get("partial", False), bool):
        raise specs.SpecError("verifier.settings.partial must be true or false")
    specs.choice(settings.get("date_order", "dmy"), fields.ORDERS, "verifier.settings.date_order")
    syntax = specs.choice(spec.get("syntax", settings.get("syntax")), SYNTAXES, "spec.syntax")
    if syntax != "json" and ("tables" in spec or "answer" in spec):
        raise specs.SpecError(
            f"spec.{'tables' if 'tables' in spec else 'answer'} needs syntax `json`, not `{syntax}`"
        )
    if "answer" in spec:
        if "fields" in spec or "tables" in spec:
            raise specs.SpecError('spec.answer stands alone: put fields into it, as {"$field": {...}}')
        anls.check(spec["answer"], "spec.answer", settings)
        return
    wanted = specs.table(spec.get("fields", {} if "tables" in spec else None), "spec.fields")
    grids = specs.table(spec.get("tables", {}), "spec.tables")
    if not wanted and not grids:
        raise specs.SpecError("spec.fields is empty: give at least 1")
    if syntax == "value" and len(wanted) != 1:
        raise specs.SpecError(f"spec.fields has {len(wanted)} fields, syntax `value` takes exactly one")
    for name, field in wanted.items():
        typed.check(field, f"spec.fields.{name}", settings)
        if field["want"] is None and syntax == "value":
            raise specs.SpecError(f"spec.fields.{name}.want is null, which syntax `value` cannot say")
    for name, grid in grids.items():
        if name in wanted:
            raise specs.SpecError(f"spec.tables.{name} is also a field: give it one name")
        tables.check(grid, f"spec.tables.{name}", settings)


def parse(text: str, syntax: str, name: str) -> dict[str, Any]:
    """Field -> value as written. `name` is the single field of syntax `value`. Raises ValueFormatError."""
    if syntax == "value":
        return {name: text.strip()}
    if syntax == "pairs":
        return pairs(text)
    value = parse_json(text.strip())
    if not isinstance(value, dict):
        raise ValueFormatError("a JSON object was expected")
    if len(value) > MAX_FIELDS:
        raise ValueFormatError(f"{len(value)} fields, {MAX_FIELDS} are allowed")
    return value


def pairs(text: str) -> dict[str, Any]:
    """`a=1;b=x`, also one pair a line; `a=` is the empty text and `a=null` is null. Raises ValueFormatError."""
    found: dict[str, Any] = {}
    for piece in text.replace("\n", ";").split(";"):
        if not piece.strip():
            continue
        key, sign, value = piece.partition("=")
        key, value = key.strip(), value.strip()
        if not sign or not key:
            raise ValueFormatError(f"not a `name=value` pair: {clip(piece.strip(), 40)}")
        if key in found:
            raise ValueFormatError(f"field {clip(key, 40)} is given twice")
        found[key] = None if value == "null" else value
        if len(found) > MAX_FIELDS:
            raise ValueFormatError(f"more than {MAX_FIELDS} fields")
    return found


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule; an answer that cannot be parsed is invalid. Raises UnusableAnswerError."""
    text = decode(submission)
    spec = task.spec
    syntax = str(spec.get("syntax", settings.get("syntax")))
    if syntax == "value" and settings.get("find") == "last_number":
        numbers = NUMBER.findall(text)
        if not numbers:
            return invalid(f"no number in the answer: {clip(text, 80)}")
        if len(numbers) > MAX_NUMBERS:
            return invalid(f"{len(numbers)} numbers in the answer, at most {MAX_NUMBERS} are looked through")
        text = numbers[-1]
    try:
        if "answer" in spec:
            return scored(_nested(spec["answer"], parse_json(text.strip()), settings))
        got = parse(text, syntax, next(iter(spec.get("fields", {})), ""))
        return scored(_flat(spec.get("fields", {}), spec.get("tables", {}), got, settings))
    except ValueFormatError as error:
        return invalid(clip(str(error)))


def _flat(
    wanted: dict[str, Any], grids: dict[str, Any], got: dict[str, Any], settings: dict[str, Any]
) -> list[Part]:
    """One part without weight for each field and table, then the F1. Raises ValueFormatError: too large to be compared."""
    work = Work()
    parts: list[Part] = []
    right, given, needed = 0.0, len(set(got) - set(grids)), len(wanted)
    for name, field in sorted(wanted.items()):
        score = typed.read(field, settings).closeness(got[name], work) if name in got else 0.0
        why = "" if score == 1.0 else f"got {shown(got[name])}" if name in got else "missing"
        parts.append(Part(name=clip(name, 80), weight=0.0, score=score, evidence=clip(why)))
        right += score
    for name, grid in sorted(grids.items()):
        found = tables.count(grid, got[name], settings, work) if name in got else None
        if found is None:
            found = tables.Count(0.0, 0, tables.size(grid), "missing")
        part = min(1.0, 2 * found.right / (found.given + found.wanted))
        parts.append(Part(name=clip(name, 80), weight=0.0, score=part, evidence=clip(found.note)))
        right, given, needed = right + found.right, given + found.given, needed + found.wanted
    invented = sorted(set(got) - set(wanted) - set(grids))
    note = f"not asked for: {', '.join(invented[:3])}" if invented else ""
    f1 = min(1.0, 2 * right / (given + needed))
    parts.append(Part(name="f1", weight=1.0, score=f1, evidence=clip(note)))
    return parts


def _nested(wanted: Any, got: Any, settings: dict[str, Any]) -> list[Part]:
    """One part without weight for each key of a wanted object, then ANLS*. Raises ValueFormatError: too large."""
    parts: list[Part] = []
    note = ""
    if isinstance(wanted, dict) and isinstance(got, dict) and not anls.TAGS & wanted.keys():
        total, scores = anls.by_key(wanted, got, settings)
        for name, score in sorted(scores.items())[:SHOWN]:
            why = "" if score == 1.0 else f"got {shown(got[name])}" if name in got else "missing"
            parts.append(Part(name=clip(name, 80), weight=0.0, score=score, evidence=clip(why)))
        invented = sorted(set(got) - set(wanted))
        note = f"not asked for: {', '.join(invented[:3])}" if invented else ""
    else:
        total = anls.score(wanted, got, settings)
    parts.append(Part(name="anls", weight=1.0, score=total, evidence=clip(note)))
    return parts
