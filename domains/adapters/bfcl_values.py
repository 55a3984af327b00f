"""The leaderboard's descriptions and values in our terms. Invariant: no slot holds a value that its schema forbids."""

from __future__ import annotations

from typing import Any

TYPES = {
    "string": "string", "String": "string", "char": "string", "integer": "integer", "int": "integer", "long": "integer",
    "short": "integer", "byte": "integer", "Bigint": "integer", "float": "number", "double": "number", "number": "number",
    "boolean": "boolean", "Boolean": "boolean", "bool": "boolean", "array": "array", "list": "array", "tuple": "array",
    "Array": "array", "ArrayList": "array", "Queue": "array", "Stack": "array", "Set": "array", "dict": "object",
    "object": "object", "HashMap": "object", "Hashtable": "object", "null": "null",
}  # fmt: skip
"""The leaderboard's type names in JSON Schema; "any" is no constraint."""
KEPT = (
    "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
    "description", "default",
)  # fmt: skip
ABSENT = ""
"""In a list of acceptable values: the parameter may be left out."""


class RefusedError(ValueError):
    """A record that cannot become a task; the message says why in one line."""


def schema(given: Any, alternatives: list[Any] | None = None) -> dict[str, Any]:
    """A parameter's description as JSON Schema; what no schema knows is left out.

    `alternatives`, if given, are the acceptable values: where the truth holds another type than declared, as a variable's name
    for a number, that type is allowed too.
    """
    if not isinstance(given, dict):
        return {}
    made = {key: given[key] for key in KEPT if key in given}
    kind = TYPES.get(str(given.get("type", "any")))
    if kind is not None:
        made["type"] = kind
    if kind == "object":
        inner = given.get("properties")
        if isinstance(inner, dict):
            made["properties"] = {name: schema(each) for name, each in inner.items()}
            required = given.get("required", [])
            made["required"] = (
                [name for name in required if name in inner] if isinstance(required, list) else []
            )
    if kind == "array" and isinstance(given.get("items"), dict):
        made["items"] = schema(given["items"])
    if alternatives is not None and kind is not None:
        others = {_type(each) for each in alternatives if each != ABSENT} - {kind}
        others -= {"integer"} if kind == "number" else set()
        if others:
            made = {"anyOf": [made, {"type": sorted(others)}]}
    return made


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def fits(value: Any, given: Any, *, outermost: bool = False) -> bool:
    """Whether a value has the type and is among the choices of `given`; the outermost may have another type, see `schema`."""
    if not isinstance(given, dict):
        return True
    kind, actual = TYPES.get(str(given.get("type"))), _type(value)
    if kind is not None and actual != kind and (kind, actual) != ("number", "integer"):
        return outermost
    if isinstance(given.get("enum"), list) and value not in given["enum"]:
        return False
    return all(fits(each, given.get("items")) for each in value) if isinstance(value, list) else True


def slot(alternatives: Any, given: Any, *, needed: bool, outermost: bool = False) -> dict[str, Any] | None:
    """The acceptable values of a parameter described by `given`; None if only leaving it out is right. Raises RefusedError."""
    if not isinstance(alternatives, list) or not alternatives:
        raise RefusedError("ground truth without a list of acceptable values")
    optional = ABSENT in alternatives and not needed
    kind = TYPES.get(str(given.get("type"))) if isinstance(given, dict) else None
    # The default of a text is often the empty one, so saying it is as right as leaving it out.
    values = [each for each in alternatives if each != ABSENT or kind in ("string", None)]
    fitting = [each for each in values if fits(each, given, outermost=outermost)]
    if not fitting and not optional:
        raise RefusedError("ground truth that its own function's description forbids")
    return {"any": [alternative(each, given) for each in fitting], "optional": optional} if fitting else None


def alternatives_of(values: dict[str, Any], known: dict[str, Any], needed: list[str]) -> dict[str, Any]:
    """Parameter -> slot, those that must be left out left out. Raises RefusedError."""
    made = {
        key: slot(options, known[key], needed=key in needed, outermost=True)
        for key, options in values.items()
    }
    return {key: each for key, each in made.items() if each is not None}


def alternative(value: Any, given: Any) -> Any:
    """One acceptable value: in an object every key has its own list of them, in a list of objects every object's keys have."""
    if isinstance(value, dict):
        inner = given.get("properties", {}) if isinstance(given, dict) else {}
        made = {key: _nested(each, inner.get(key)) for key, each in value.items()}
        return {"fields": {key: each for key, each in made.items() if each is not None}}
    if isinstance(value, list):
        item = given.get("items") if isinstance(given, dict) else None
        return {"items": [{"any": [alternative(each, item)]} for each in value]}
    return {"value": value}


def _nested(each: Any, given: Any) -> dict[str, Any] | None:
    if isinstance(each, list) and each:
        listed = isinstance(given, dict) and TYPES.get(str(given.get("type"))) == "array"
        if not listed or all(isinstance(option, list) or option == ABSENT for option in each):
            return slot(each, given, needed=False)
    return {"any": [alternative(each, given)], "optional": False}


def parameters(function: dict[str, Any], truth: dict[str, list[Any]]) -> dict[str, Any]:
    """The JSON Schema of a function's parameters; `truth`: their acceptable values, see `schema`. Raises RefusedError."""
    described = function.get("parameters")
    if not isinstance(described, dict) or not isinstance(described.get("properties", {}), dict):
        raise RefusedError(f"function {function.get('name')} without a table of parameters")
    known = described.get("properties", {})
    return {
        "type": "object",
        "properties": {name: schema(each, truth.get(name)) for name, each in known.items()},
        "required": [name for name in described.get("required", []) if name in known],
        "additionalProperties": False,
    }


def example(slots: dict[str, Any]) -> dict[str, Any]:
    """Arguments that are right: the first acceptable values, optional ones left out."""
    return {name: _first(each["any"][0]) for name, each in slots.items() if not each["optional"]}


def _first(choice: Any) -> Any:
    if "items" in choice:
        return [_first(each["any"][0]) for each in choice["items"]]
    return example(choice["fields"]) if "fields" in choice else choice["value"]
