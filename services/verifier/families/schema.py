"""JSON Schema of a function's parameters. Invariant: a schema that is accepted is understood wholly and costs bounded time.

Dialect: 2020-12 without `unevaluated*`, `$id`, anchors and remote references. An unknown keyword is an error of the task, not
an annotation: a constraint that is not checked would be a reward. `$ref` may name "#/$defs/NAME", is put in place, and may not
lead back to itself. `pattern` runs on an engine that is linear in the text (linear.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from schemas.verdicts import clip
from services.verifier.families import dialect
from services.verifier.families.linear import PatternError, compiled
from services.verifier.specs import SpecError

NOTES = (
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "$schema",
    "deprecated",
    "readOnly",
    "writeOnly",
)
PLAIN = (
    "type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
    "maxProperties", "minProperties", "required", "dependentRequired", "format",
)  # fmt: skip
ONE = ("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else")
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("properties", "patternProperties", "dependentSchemas")
MAX_NODES = 2000
MAX_DEPTH = 32
LOCAL = "#/$defs/"


class _Builder:
    """Copies a schema with its references put in place."""

    def __init__(self, schema: Any, where: str) -> None:
        self.where, self.left = where, MAX_NODES
        self.defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}

    def build(self, node: Any, place: str, opened: tuple[str, ...], depth: int) -> Any:
        """`node` without references; `opened` are those that lead to it. Raises SpecError."""
        self.left -= 1
        if self.left < 0 or depth > MAX_DEPTH:
            raise SpecError(f"{self.where}: more than {MAX_NODES} sub-schemas, or deeper than {MAX_DEPTH}")
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return self.build(*self.target(node, place, opened), depth + 1)
        _keywords(node, place)
        made: dict[str, Any] = {}
        for key, value in node.items():
            inner = f"{place}.{key}"
            if key in PLAIN:
                made[key] = value
            elif key in ONE:
                made[key] = self.build(value, inner, opened, depth + 1)
            elif key in MANY:
                made[key] = [self.build(each, inner, opened, depth + 1) for each in _of(value, inner, list)]
            elif key in NAMED:
                entries = _of(value, inner, dict).items()
                made[key] = {
                    name: self.build(each, f"{inner}.{name}", opened, depth + 1) for name, each in entries
                }
        return made

    def target(
        self, node: dict[str, Any], place: str, opened: tuple[str, ...]
    ) -> tuple[Any, str, tuple[str, ...]]:
        """What a `$ref` names, with its place, and the references now open. Raises SpecError."""
        reference = node["$ref"]
        others = sorted(set(node) - {"$ref", "$defs", *NOTES})
        if not isinstance(reference, str) or not reference.startswith(LOCAL):
            raise SpecError(
                f"{place}.$ref {reference!r} is not supported: only {LOCAL}NAME is, nothing is fetched"
            )
        if others:
            raise SpecError(f"{place} has {others[0]!r} beside $ref: put both into allOf")
        name = reference.removeprefix(LOCAL)
        if not isinstance(self.defs, dict) or name not in self.defs:
            raise SpecError(f"{place}.$ref {reference!r} names nothing")
        if reference in opened:
            raise SpecError(f"{place}.$ref {reference!r} leads back to itself")
        return self.defs[name], f"{self.where}.$defs.{name}", (*opened, reference)


def resolved(schema: Any, where: str) -> Any:
    """`schema` with every `$ref` put in place, as a new value.

    Raises:
        SpecError: an unknown keyword or format, a pattern beyond the engine, a reference that is remote, missing or circular,
            or a schema that becomes too large or too deep.
    """
    return _Builder(schema, where).build(schema, where, (), 0)


def _of(value: Any, place: str, kind: type) -> Any:
    if not isinstance(value, kind):
        raise SpecError(f"{place} must be a {'list' if kind is list else 'table'}")
    return value


def _keywords(node: dict[str, Any], place: str) -> None:
    known = {*NOTES, *PLAIN, *ONE, *MANY, *NAMED, "$defs"}
    unknown = sorted(key for key in node if key not in known and not key.startswith("x-"))
    if unknown:
        raise SpecError(f"{place} has an unknown keyword {unknown[0]!r}; what is not checked is refused")
    if "format" in node and str(node["format"]) not in dialect.FORMATS:
        raise SpecError(f"{place}.format is {node['format']!r}: choose one of {', '.join(dialect.FORMATS)}")
    patterns = [str(node["pattern"])] if "pattern" in node else []
    if isinstance(node.get("patternProperties"), dict):
        patterns.extend(node["patternProperties"])
    for pattern in patterns:
        try:
            compiled(pattern)
        except PatternError as error:
            raise SpecError(f"{place}: pattern {clip(pattern, 60)!r}: {error}") from error


def check(schema: dict[str, Any], where: str) -> None:
    """Raises SpecError unless `schema` is one of the dialect; see `resolved`."""
    fault = _fault(_key(schema), where)
    if fault:
        raise SpecError(fault)


def _key(schema: dict[str, Any]) -> bytes:
    return msgspec.json.encode(schema, order="deterministic")


@lru_cache(maxsize=512)
def _fault(schema: bytes, where: str) -> str:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(resolved(msgspec.json.decode(schema), where))
    except SchemaError as error:
        return f"{where} is no JSON Schema: {error.message}"
    except SpecError as error:
        return str(error)
    return ""


@lru_cache(maxsize=512)
def _ready(schema: bytes) -> tuple[Any, dict[str, Any]]:
    kind, checker = dialect.parts()
    made = resolved(msgspec.json.decode(schema), "parameters")
    return kind(made, format_checker=checker), made


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """An accepted schema without references."""
    return _ready(_key(schema))[1]


def faults(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, str]:
    """Parameter -> what is wrong with it ("" stands for the whole); unexpected parameters are faults in any schema."""
    found: dict[str, str] = {}
    validator, plain = _ready(_key(schema))
    for error in validator.iter_errors(arguments):
        if error.validator == "required" and not error.path:
            missing = sorted(set(error.validator_value) - set(arguments))
            found.setdefault("", f"required parameter missing: {', '.join(missing)}")
        elif error.validator == "additionalProperties" and len(error.path) == 1:
            continue  # said below, of closed and open schemas alike
        elif error.path:
            found.setdefault(str(error.path[0]), clip(error.message, 120))
        else:
            found.setdefault("", clip(error.message, 120))
    for name in arguments:
        if name not in plain.get("properties", {}):
            found.setdefault(name, f"unexpected parameter {name!r}")
    return dict(sorted(found.items()))
