"""Function calls as data. Invariant: an answer is parsed, never evaluated, and passes only if it is exactly the wanted calls.

Score: mean over max(wanted, given) calls of 0.3 * name + 0.7 * F1 over (parameter, value), under the best assignment.
A value counts if it equals the wanted one and fits its schema; an integer stands for a number where the schema says `number`.
"""

# ruff: noqa: ARG001 (JSON data has no narrower type; every family has the same signature)
from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, invalid, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families.assign import best
from services.verifier.families.calls import Call, parse_json_calls, parse_python_calls
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, is_plain, same

MAX_CALLS = 32
ROUNDING = 1e-9
NAME_SHARE = 0.3


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`syntax` "json" | "python", `functions` [{`name`, `parameters`: JSON Schema}], `want` [{`name`, `arguments`}].

    Setting `form`: "long" (the default) or "short", which also takes `{"f": {...}}`. The wanted calls must fit their
    schemas. Raises SpecError.
    """
    specs.keys(settings, ("form",), "verifier.settings")
    specs.choice(settings.get("form", "long"), ("long", "short"), "verifier.settings.form")
    specs.choice(spec.get("syntax"), ("json", "python"), "spec.syntax")
    schemas: dict[str, Any] = {}
    for index, function in enumerate(specs.items(spec.get("functions"), "spec.functions", least=1)):
        where = f"spec.functions[{index}]"
        name = specs.text(specs.table(function, where).get("name"), f"{where}.name")
        schemas[name] = specs.table(function.get("parameters"), f"{where}.parameters")
        fault = _schema_fault(_key(schemas[name]))
        if fault:
            raise specs.SpecError(f"{where}.parameters is no JSON Schema: {fault}")
    for index, call in enumerate(specs.items(spec.get("want"), "spec.want")):
        where = f"spec.want[{index}]"
        name = specs.text(specs.table(call, where).get("name"), f"{where}.name")
        arguments = specs.table(call.get("arguments"), f"{where}.arguments")
        if name not in schemas:
            raise specs.SpecError(f"{where}.name {name!r} is not among spec.functions")
        if not is_plain(arguments):
            raise specs.SpecError(f"{where}.arguments is not plain JSON data")
        fault = next(iter(faults(schemas[name], arguments).values()), "")
        if fault:
            raise specs.SpecError(f"{where}.arguments does not fit its schema: {fault}")


def _key(schema: dict[str, Any]) -> bytes:
    return msgspec.json.encode(schema, order="deterministic")


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Any:
    from jsonschema import Draft202012Validator  # heavy: not needed by the other families

    return Draft202012Validator(msgspec.json.decode(schema))


@lru_cache(maxsize=512)
def _schema_fault(schema: bytes) -> str:
    from jsonschema import Draft202012Validator, SchemaError

    if b'"$ref"' in schema:
        return "$ref is not supported"
    try:
        Draft202012Validator.check_schema(msgspec.json.decode(schema))
    except SchemaError as error:
        return str(error.message)
    return ""


def faults(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, str]:
    """Parameter -> what is wrong with it ("" stands for the whole); unexpected parameters are faults in any schema."""
    found: dict[str, str] = {}
    for error in _validator(_key(schema)).iter_errors(arguments):
        if error.validator == "required":
            missing = sorted(set(error.validator_value) - set(arguments))
            found.setdefault("", f"required parameter missing: {', '.join(missing)}")
        elif error.path:
            found.setdefault(str(error.path[0]), clip(error.message, 120))
    for name in arguments:
        if name not in schema.get("properties", {}):
            found.setdefault(name, f"unexpected parameter {name!r}")
    return dict(sorted(found.items()))


def pair_score(got: Call, want: Call, schema: dict[str, Any] | None) -> tuple[float, str]:
    """(score in [0, 1], first fault) of one given call against one wanted call; `schema` is that of the given name."""
    wrong = faults(schema, got.arguments) if schema is not None else {"": f"no function {got.name!r}"}
    types = (schema or {}).get("properties", {})
    right = sum(
        name in got.arguments
        and name not in wrong
        and same(got.arguments[name], value, widen=types.get(name, {}).get("type") == "number")
        for name, value in want.arguments.items()
    )
    total = len(got.arguments) + len(want.arguments)
    f1 = 2 * right / total if total else 1.0
    named = got.name == want.name
    why = next(iter(wrong.values()), "")
    if not named:
        why = f"calls {got.name}, not {want.name}"
    elif not why and f1 < 1.0:
        why = "wrong arguments: " + ", ".join(
            sorted(set(want.arguments) ^ set(got.arguments)) or ["values differ"]
        )
    return NAME_SHARE * named + (1 - NAME_SHARE) * f1, clip(why)


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule; an answer that cannot be parsed is invalid. Raises UnusableAnswerError."""
    text = decode(submission)
    spec = task.spec
    short = settings.get("form", "long") == "short"
    try:
        calls = parse_json_calls(text, short=short) if spec["syntax"] == "json" else parse_python_calls(text)
    except ValueFormatError as error:
        return invalid(clip(str(error)))
    if len(calls) > MAX_CALLS:
        return invalid(f"{len(calls)} calls, {MAX_CALLS} are allowed")
    schemas = {function["name"]: function["parameters"] for function in spec["functions"]}
    wanted = [Call(call["name"], call["arguments"]) for call in spec["want"]]
    table = [[pair_score(got, want, schemas.get(got.name)) for want in wanted] for got in calls]
    chosen = best([[score for score, _ in row] for row in table])
    longer = max(len(wanted), len(calls))
    score = sum(table[row][column][0] for row, column in chosen) / longer if longer else 1.0
    reasons = [table[row][column][1] for row, column in chosen if table[row][column][1]]
    if len(calls) != len(wanted):
        reasons.insert(0, f"{len(calls)} calls, {len(wanted)} wanted")
    exact = not reasons and all(abs(table[row][column][0] - 1.0) < ROUNDING for row, column in chosen)
    part = Part(
        name="calls", weight=1.0, score=1.0 if exact else min(score, 0.999), evidence="; ".join(reasons[:2])
    )
    return scored([part], passed=exact)
