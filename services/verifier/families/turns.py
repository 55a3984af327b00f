"""Calls over several turns, judged by what they do. Invariant: a turn in which nothing right is done scores 0.

Both the wanted and the given calls run against the fake API from its first state. Score of a turn: the mean of
 state = F1 over (path, new value) of what the turn changed, and
 calls = required calls made / (required + calls that nobody wanted), under the best matching.
A turn that should change nothing has only the second. The end counts END_SHARE where the wanted calls change the state at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemas.verdicts import Part, clip
from services.verifier import specs
from services.verifier.families import api, schema
from services.verifier.families.assign import best
from services.verifier.families.calls import Call
from services.verifier.families.differences import State, changes
from services.verifier.families.slots import Rules, equal

END_SHARE = 0.3
MAX_TURNS = 16
JUDGES = ("both", "state")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn should call: all of `want` leads to the wanted state, those at `required` must be seen."""

    want: tuple[Call, ...]
    required: tuple[int, ...]


def read(spec: dict[str, Any]) -> list[Turn]:
    """The turns of a spec that `check` has accepted."""
    made = []
    for turn in spec["turns"]:
        want = tuple(Call(call["name"], call["arguments"]) for call in turn["want"])
        made.append(Turn(want, tuple(turn.get("required", range(len(want))))))
    return made


def check(spec: dict[str, Any], schemas: dict[str, Any], where: str) -> None:
    """`api` (see api.py), `turns` [{`want`: calls, `required`: indices, default all}], `judge` "both" or "state".

    Raises SpecError, also if a wanted call cannot be done.
    """
    api.check(spec.get("api"), schemas, f"{where}.api")
    judge = specs.choice(spec.get("judge", "both"), JUDGES, f"{where}.judge")
    turns = specs.items(spec.get("turns"), f"{where}.turns", least=1)
    if len(turns) > MAX_TURNS:
        raise specs.SpecError(f"{where}.turns has {len(turns)} entries, {MAX_TURNS} are allowed")
    state: State = spec["api"]["state"]
    for index, turn in enumerate(turns):
        place = f"{where}.turns[{index}]"
        specs.keys(specs.table(turn, place), ("want", "required"), place)
        calls = specs.items(turn.get("want"), f"{place}.want", least=1)
        before = state
        for position, call in enumerate(calls):
            state = _wanted(spec, schemas, call, state, f"{place}.want[{position}]")
        for position in specs.items(turn.get("required", []), f"{place}.required"):
            if specs.whole(position, f"{place}.required") >= len(calls):
                raise specs.SpecError(f"{place}.required names call {position}, of {len(calls)}")
        if not changes(before, state) and (judge == "state" or turn.get("required") == []):
            raise specs.SpecError(
                f"{place} changes nothing and requires no call: an empty turn would be right"
            )


def _wanted(spec: dict[str, Any], schemas: dict[str, Any], call: Any, state: State, where: str) -> State:
    name = specs.text(specs.table(call, where).get("name"), f"{where}.name")
    arguments = specs.table(call.get("arguments"), f"{where}.arguments")
    if name not in schemas:
        raise specs.SpecError(f"{where}.name {name!r} is not among spec.functions")
    fault = next(iter(schema.faults(schemas[name], arguments).values()), "")
    if fault:
        raise specs.SpecError(f"{where}.arguments does not fit its schema: {fault}")
    try:
        return api.after(spec["api"]["functions"], state, Call(name, arguments))
    except api.RefusedError as error:
        raise specs.SpecError(f"{where} cannot be done: {error}") from error


def score(
    spec: dict[str, Any], schemas: dict[str, Any], given: Sequence[Sequence[Call]], rules: Rules
) -> list[Part]:
    """One part a turn and one for the end. `given` may have more turns or fewer; a turn too many is a turn of 0."""
    wanted, functions = read(spec), spec["api"]["functions"]
    state_only = spec.get("judge", "both") == "state"
    first: State = spec["api"]["state"]
    right = ours = first
    parts: list[Part] = []
    count = max(len(wanted), len(given))
    for index in range(count):
        turn = wanted[index] if index < len(wanted) else Turn((), ())
        calls = given[index] if index < len(given) else ()
        before_right, before_ours = right, ours
        for call in turn.want:
            right = api.after(functions, right, call)
        ours, refused = _play(functions, schemas, ours, calls)
        state = _state_score(changes(before_right, right), changes(before_ours, ours))
        made = _calls_score(turn, calls, schemas, rules)
        scores = [part for part in (state, None if state_only else made) if part is not None]
        value = sum(scores) / len(scores) if scores else 0.0
        note = "; ".join(refused[:2]) or ("" if value == 1.0 else "other calls or effects than wanted")
        parts.append(Part(name=f"turn {index + 1}", weight=1.0, score=value, evidence=clip(note)))
    if changes(first, right):
        missed = changes(right, ours)
        note = f"{len(missed)} values differ in the end" if missed else ""
        weight = END_SHARE / (1 - END_SHARE) * count
        parts.append(Part(name="end", weight=weight, score=float(not missed), evidence=note))
    return parts


def _play(
    functions: dict[str, Any], schemas: dict[str, Any], state: State, calls: Sequence[Call]
) -> tuple[State, list[str]]:
    """The state after a turn's calls, and why some of them could not be done."""
    refused: list[str] = []
    for call in calls:
        wrong = schema.faults(schemas[call.name], call.arguments) if call.name in schemas else {}
        if wrong:
            refused.append(f"{call.name}: {next(iter(wrong.values()))}")
            continue
        try:
            state = api.after(functions, state, call)
        except api.RefusedError as error:
            refused.append(f"{call.name}: {error}")
    return state, refused


def _state_score(wanted: set[Any], made: set[Any]) -> float | None:
    """F1 over changes; None if nothing should change and nothing did."""
    if not wanted and not made:
        return None
    return 2 * len(wanted & made) / (len(wanted) + len(made))


def _calls_score(turn: Turn, calls: Sequence[Call], schemas: dict[str, Any], rules: Rules) -> float:
    if not turn.required and not calls:
        return 1.0 if turn.want else 0.0
    # A required call counts a little more, so that of two equal assignments the one with more of them is taken.
    table = [
        [_same(want, call, schemas, rules) * (2.0 if i in turn.required else 1.0) for call in calls]
        for i, want in enumerate(turn.want)
    ]
    hits = [(row, column) for row, column in best(table) if table[row][column]]
    surplus = len(calls) - len(hits)
    if not turn.required:
        return 0.0 if surplus else 1.0
    return sum(row in turn.required for row, _ in hits) / (len(turn.required) + surplus)


def _same(want: Call, call: Call, schemas: dict[str, Any], rules: Rules) -> bool:
    if want.name != call.name or schema.faults(schemas[call.name], call.arguments):
        return False
    return equal(want.arguments, call.arguments, schema.inlined(schemas[call.name]), rules)
