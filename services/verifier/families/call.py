"""Function calls as data. Invariant: an answer is parsed, never evaluated, and passes only if it is exactly the wanted calls.

Score: mean over max(wanted, given) calls, under the best assignment, of
 0.3 + 0.7 * F1 over (parameter, value) where the function is the wanted one, and
 WRONG_NAME * F1 where it is not: right arguments of the wrong function do the wrong thing.
A value counts if it is acceptable (slots.py) and fits its schema (schema.py); an integer stands for a number where the schema
says `number`. Where no call is wanted, only an explicit empty list or a stated refusal is right. Several turns: turns.py.
"""

# ruff: noqa: ARG001 (every family has the same signature)
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, invalid, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.families import calls as parsing
from services.verifier.families import fields, schema, turns
from services.verifier.families.assign import best, in_order
from services.verifier.families.calls import Call
from services.verifier.families.slots import Rules, Slot, accepts, example, fixed, slots
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, is_plain

MAX_CALLS = 32
ROUNDING = 1e-9
NAME_SHARE = 0.3
WRONG_NAME = 0.2
SETTINGS = ("form", "order", "text", "tolerance")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that should be made."""

    name: str
    slots: dict[str, Slot]


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`syntax` "json" | "python", `functions` [{`name`, `parameters`: JSON Schema}], and `want` or `turns`.

    `want`: [{`name`, and `arguments` (exact) or `accept` (slots)}]; [] if no call is right, then `decline` may list texts
    that say so. `turns` and `api`: see turns.py. Settings, which a spec may overrule by a key of the same name except `form`:
    `form` "long" (default) or "short", which also takes `{"f": {...}}`; `order` "any" (default) or "kept"; `text` "exact"
    (default) or "loose"; `tolerance` relative, for numbers (default 0). Example calls must fit their schemas. Raises SpecError.
    """
    specs.keys(settings, SETTINGS, "verifier.settings")
    specs.choice(settings.get("form", "long"), ("long", "short"), "verifier.settings.form")
    for given, where in ((settings, "verifier.settings"), (spec, "spec")):
        specs.choice(given.get("order", "any"), ("any", "kept"), f"{where}.order")
        specs.choice(given.get("text", "exact"), ("exact", "loose"), f"{where}.text")
        specs.number(given.get("tolerance", 0.0), f"{where}.tolerance", low=0.0, high=0.1)
    specs.choice(spec.get("syntax"), ("json", "python"), "spec.syntax")
    schemas: dict[str, Any] = {}
    for index, function in enumerate(specs.items(spec.get("functions"), "spec.functions", least=1)):
        where = f"spec.functions[{index}]"
        name = specs.text(specs.table(function, where).get("name"), f"{where}.name")
        if name in schemas:
            raise specs.SpecError(f"{where}.name {name!r} is there twice")
        schemas[name] = specs.table(function.get("parameters"), f"{where}.parameters")
        schema.check(schemas[name], f"{where}.parameters")
    if "turns" in spec:
        if "want" in spec:
            raise specs.SpecError("spec has both want and turns: give one")
        turns.check(spec, schemas, "spec")
        return
    wanted = specs.items(spec.get("want"), "spec.want")
    if len(wanted) > MAX_CALLS:
        raise specs.SpecError(f"spec.want has {len(wanted)} calls, {MAX_CALLS} are allowed")
    for index, call in enumerate(wanted):
        _check_want(call, schemas, f"spec.want[{index}]")
    if specs.texts(spec.get("decline", []), "spec.decline") and wanted:
        raise specs.SpecError("spec.decline is for tasks whose want is empty")


def _check_want(call: Any, schemas: dict[str, Any], where: str) -> None:
    name = specs.text(specs.table(call, where).get("name"), f"{where}.name")
    if "accept" in call:
        if "arguments" in call:
            raise specs.SpecError(f"{where} has both arguments and accept: give one")
        kind, arguments = "accept", example(slots(call["accept"], f"{where}.accept"))
    else:
        kind, arguments = "arguments", specs.table(call.get("arguments"), f"{where}.arguments")
    if name not in schemas:
        raise specs.SpecError(f"{where}.name {name!r} is not among spec.functions")
    if not is_plain(arguments):
        raise specs.SpecError(f"{where}.{kind} is not plain JSON data")
    known = schema.inlined(schemas[name]).get("properties", {})
    odd = sorted(set(call.get("accept", {})) - set(known))
    fault = (
        f"unexpected parameter {odd[0]!r}"
        if odd
        else next(iter(schema.faults(schemas[name], arguments).values()), "")
    )
    if fault:
        raise specs.SpecError(f"{where}.{kind} does not fit its schema: {fault}")


def _wanted(call: Mapping[str, Any]) -> Wanted:
    given = call.get("accept")
    return Wanted(
        call["name"], fixed(call["arguments"]) if given is None else slots(given, "spec.want.accept")
    )


def pair_score(
    got: Call, want: Wanted, plain: dict[str, Any] | None, wrong: dict[str, str], rules: Rules
) -> tuple[float, str]:
    """(score in [0, 1], first fault) of one given call against one wanted call.

    `plain` is the schema of the given name without references, None if there is no such function; `wrong` what it finds.
    """
    types = (plain or {}).get("properties", {})
    right = sum(
        name in got.arguments
        and name not in wrong
        and accepts(slot, got.arguments[name], types.get(name), rules)
        for name, slot in want.slots.items()
    )
    # An optional parameter counts where it is given.
    needed = sum(name in got.arguments or not slot.optional for name, slot in want.slots.items())
    total = len(got.arguments) + needed
    named = got.name == want.name
    if not named:
        return WRONG_NAME * (2 * right / total if total else 0.0), clip(f"calls {got.name}, not {want.name}")
    f1 = 2 * right / total if total else 1.0
    why = next(iter(wrong.values()), "")
    if not why and f1 < 1.0:
        absent = {name for name, slot in want.slots.items() if not slot.optional} - set(got.arguments)
        why = "wrong arguments: " + ", ".join(
            sorted(absent | (set(got.arguments) - set(want.slots))) or ["values differ"]
        )
    return NAME_SHARE + (1 - NAME_SHARE) * f1, clip(why)


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """Score of the module's rule; an answer that cannot be parsed is invalid. Raises UnusableAnswerError."""
    text = decode(submission)
    spec = settings | task.spec
    schemas = {function["name"]: function["parameters"] for function in spec["functions"]}
    rules = Rules(loose=spec.get("text") == "loose", tolerance=float(spec.get("tolerance", 0.0)))
    short = settings.get("form", "long") == "short"
    dotted = any("." in name for name in schemas)
    if not spec.get("want", True) and fields.text(text) in {
        fields.text(each) for each in spec.get("decline", ())
    }:
        return scored([Part(name="calls", weight=1.0, score=1.0)], passed=True)
    try:
        if "turns" in spec:
            return _play(spec, schemas, text, rules, short=short, dotted=dotted)
        if spec["syntax"] == "json":
            made = parsing.parse_json_calls(text, short=short)
        else:
            made = parsing.parse_python_calls(text, dotted=dotted)
        if not made and not spec["want"] and not text.strip().startswith("["):
            # A comment alone holds no call, but it does not say that there is none to be made.
            return invalid("neither calls nor an empty list")
    except ValueFormatError as error:
        return invalid(clip(str(error)))
    if len(made) > MAX_CALLS:
        return invalid(f"{len(made)} calls, {MAX_CALLS} are allowed")
    return _compare(spec, schemas, made, rules)


def _play(
    spec: dict[str, Any], schemas: dict[str, Any], text: str, rules: Rules, *, short: bool, dotted: bool
) -> Verdict:
    count = len(spec["turns"])
    if spec["syntax"] == "json":
        given = parsing.parse_json_turns(text, short=short, turns=count)
    else:
        given = parsing.parse_python_turns(text, dotted=dotted, turns=count)
    total = sum(map(len, given))
    if total > 2 * MAX_CALLS or len(given) > 2 * turns.MAX_TURNS:
        return invalid(
            f"{total} calls in {len(given)} turns, {2 * MAX_CALLS} in {2 * turns.MAX_TURNS} are allowed"
        )
    return scored(turns.score(spec, schemas, given, rules))


def _compare(spec: dict[str, Any], schemas: dict[str, Any], made: list[Call], rules: Rules) -> Verdict:
    wanted = [_wanted(call) for call in spec["want"]]
    # Faults are those of a call alone, so they are looked for once and not once a pair.
    plain = {call.name: schema.inlined(schemas[call.name]) for call in made if call.name in schemas}
    wrong = [schema.faults(schemas[c.name], c.arguments) if c.name in schemas else {} for c in made]
    table = [
        [pair_score(call, want, plain.get(call.name), faults, rules) for want in wanted]
        for call, faults in zip(made, wrong, strict=True)
    ]
    pairing = in_order if spec.get("order") == "kept" else best
    chosen = pairing([[score for score, _ in row] for row in table])
    longer = max(len(wanted), len(made))
    score = sum(table[row][column][0] for row, column in chosen) / longer if longer else 1.0
    reasons = [table[row][column][1] for row, column in chosen if table[row][column][1]]
    if len(made) != len(wanted):
        reasons.insert(0, f"{len(made)} calls, {len(wanted)} wanted")
    exact = (
        not reasons
        and len(chosen) == len(wanted)
        and all(abs(table[row][column][0] - 1.0) < ROUNDING for row, column in chosen)
    )
    if not exact and not reasons:
        reasons.append("calls in another order")
    part = Part(
        name="calls", weight=1.0, score=1.0 if exact else min(score, 0.999), evidence="; ".join(reasons[:2])
    )
    return scored([part], passed=exact)
