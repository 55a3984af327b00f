"""Fields taken out of a document. Invariant: a field counts if its typed value equals the wanted one; invented fields cost.

Score: F1 over fields; a prediction is right to the degree its field is (1 or 0, or ANLS of at least 0.5 for text when the
setting `partial` is on; ANLS = 1 - edit distance / longer length). Missing, null and empty are three different things.
"""

# ruff: noqa: ARG001 (every family has the same signature)
from __future__ import annotations

import re
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, invalid, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import fields
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, parse_json, shown

TYPES = ("text", "number", "date", "enum")
SYNTAXES = ("json", "pairs", "value")
FINDS = ("all", "last_number")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
MAX_FIELDS = 256


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`syntax` "json" | "pairs" | "value", `fields` {name: {`type`, `want`, for enum `values`}}.

    Settings: `partial` (text by ANLS), `syntax` (default of the spec's), `date_order` "dmy" (default) or "mdy", and `find`
    "all" (default: the whole answer is the value) or "last_number", for models that answer in sentences. Raises SpecError.
    """
    specs.keys(settings, ("partial", "syntax", "date_order", "find"), "verifier.settings")
    specs.choice(settings.get("find", "all"), FINDS, "verifier.settings.find")
    if not isinstance(settings.get("partial", False), bool):
        raise specs.SpecError("verifier.settings.partial must be true or false")
    specs.choice(settings.get("date_order", "dmy"), fields.ORDERS, "verifier.settings.date_order")
    syntax = specs.choice(spec.get("syntax", settings.get("syntax")), SYNTAXES, "spec.syntax")
    wanted = specs.table(spec.get("fields"), "spec.fields")
    if not wanted:
        raise specs.SpecError("spec.fields is empty: give at least 1")
    if syntax == "value" and len(wanted) != 1:
        raise specs.SpecError(f"spec.fields has {len(wanted)} fields, syntax `value` takes exactly one")
    for name, field in wanted.items():
        where = f"spec.fields.{name}"
        kind = specs.choice(specs.table(field, where).get("type"), TYPES, f"{where}.type")
        specs.keys(field, ("type", "want", "values"), where)
        if "want" not in field:
            raise specs.SpecError(f"{where}.want is missing")
        want = field["want"]
        if want is None and syntax == "value":
            raise specs.SpecError(f"{where}.want is null, which syntax `value` cannot say")
        if want is not None and fields.normal(want, kind, settings.get("date_order", "dmy")) is None:
            raise specs.SpecError(f"{where}.want {want!r} is no {kind}")
        values = specs.texts(field["values"], f"{where}.values", least=1) if "values" in field else None
        if kind == "enum" and want is not None and values is not None and str(want) not in values:
            raise specs.SpecError(f"{where}.want {want!r} is not among its values")


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
    wanted: dict[str, dict[str, Any]] = task.spec["fields"]
    syntax = str(task.spec.get("syntax", settings.get("syntax")))
    if syntax == "value" and settings.get("find") == "last_number":
        numbers = NUMBER.findall(text)
        if not numbers:
            return invalid(f"no number in the answer: {clip(text, 80)}")
        text = numbers[-1]
    try:
        got = parse(text, syntax, next(iter(wanted)))
    except ValueFormatError as error:
        return invalid(clip(str(error)))
    order, partial = settings.get("date_order", "dmy"), settings.get("partial", False)
    parts, sum_right = [], 0.0
    for name, field in sorted(wanted.items()):
        score = fields.score(got[name], field, order, partial=partial) if name in got else 0.0
        why = "" if score == 1.0 else f"got {shown(got[name])}" if name in got else "missing"
        parts.append(Part(name=clip(name, 80), weight=0.0, score=score, evidence=clip(why)))
        sum_right += score
    invented = sorted(set(got) - set(wanted))
    f1 = 2 * sum_right / (len(got) + len(wanted))
    note = f"not asked for: {', '.join(invented[:3])}" if invented else ""
    parts.append(Part(name="f1", weight=1.0, score=min(1.0, f1), evidence=clip(note)))
    return scored(parts)
