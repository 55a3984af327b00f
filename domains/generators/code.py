"""Code domains: short Python expressions and functions. Invariant: a slip passes no case of its sample."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from domains.generators.common import EASY, HARD, LETTERS, level, name, names, sample
from schemas.tasks import Sample

# `x` is what slips call every parameter, and what comprehensions bind.
PARAMETERS = LETTERS.replace("x", "")
OPERATORS = {"plus": "+", "minus": "-", "times": "*"}
SWAPPED = {"+": "-", "-": "+", "*": "+"}


def _cases(inputs: list[list[Any]], solve: Callable[..., Any]) -> list[dict[str, Any]]:
    return [{"args": args, "want": solve(*args)} for args in inputs]


def _apply(symbol: str, left: int, right: int) -> int:
    return left + right if symbol == "+" else left - right if symbol == "-" else left * right


def arithmetic(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`py q times 3 plus 7>` -> `q*3+7`; the simplest level has one operator."""
    step = level(difficulty)
    var = rng.choice(PARAMETERS)
    low, high = ((3, 99), (3, 9), (10, 99))[step]
    a, b = rng.sample(range(low, high + 1), 2)
    inputs = [[value] for value in rng.sample(range(3, 40), 4)]
    if step == EASY:
        word, op = rng.choice(sorted(OPERATORS.items()))
        gold = f"{var}{op}{a}"
        slips: tuple[str, ...] = (f"{var}{SWAPPED[op]}{a}", f"x{op}{a}")
        prompt, cases = f"py {var} {word} {a}", _cases(inputs, lambda v: _apply(op, v, a))
    else:
        word = rng.choice(("plus", "minus"))
        op = OPERATORS[word]
        gold = f"{var}*{a}{op}{b}"
        slips = (f"{var}*{a}{SWAPPED[op]}{b}", f"{var}*{a}", f"x*{a}{op}{b}")
        prompt, cases = f"py {var} times {a} {word} {b}", _cases(inputs, lambda v: _apply(op, v * a, b))
    return sample(difficulty, prompt, gold, _expression(var, cases), slips)


def _expression(var: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    return {"entry": "f", "kind": "expression", "params": [var], "cases": cases}


def lists(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`py l first 3>` -> `l[:3]`; slices, then appended items, then comprehensions."""
    step = level(difficulty)
    var = rng.choice(PARAMETERS)
    n = rng.randint(2, (20, 30, 99)[step])
    word = rng.choice(
        (("first", "last", "skip"), ("add", "put", "first", "skip"), ("over", "under", "plus", "times"))[step]
    )
    made: dict[str, tuple[str, tuple[str, ...], Callable[[list[int]], Any]]] = {
        "first": (f"{var}[:{n}]", (f"{var}[{n}:]", f"{var}[{n}]"), lambda v: v[:n]),
        "last": (f"{var}[-{n}:]", (f"{var}[:-{n}]", f"{var}[-{n}]"), lambda v: v[-n:]),
        "skip": (f"{var}[{n}:]", (f"{var}[:{n}]", f"{var}[{n}]"), lambda v: v[n:]),
        "add": (f"{var}+[{n}]", (f"{var}.append({n})", f"{var}+{n}"), lambda v: [*v, n]),
        "put": (f"[{n}]+{var}", (f"{var}.insert(0,{n})", f"{n}+{var}"), lambda v: [n, *v]),
        "over": (
            f"[x for x in {var} if x>{n}]",
            (f"[x for x in {var} if x<{n}]", f"{var}>{n}"),
            lambda v: [e for e in v if e > n],
        ),
        "under": (
            f"[x for x in {var} if x<{n}]",
            (f"[x for x in {var} if x>{n}]", f"{var}<{n}"),
            lambda v: [e for e in v if e < n],
        ),
        "plus": (
            f"[x+{n} for x in {var}]",
            (f"{var}+{n}", f"x+{n} for x in {var}"),
            lambda v: [e + n for e in v],
        ),
        "times": (
            f"[x*{n} for x in {var}]",
            (f"{var}*{n}", f"x*{n} for x in {var}"),
            lambda v: [e * n for e in v],
        ),
    }
    gold, slips, solve = made[word]
    # Longer than twice the slice, so that no two slices are equal; or with values on both sides of n.
    if word in ("first", "last", "skip"):
        inputs = [[rng.sample(range(1000), 2 * n + 1 + extra)] for extra in (0, 1, 2)]
    else:
        inputs = [
            [[n, *rng.sample(range(n), min(n, 2)), *rng.sample(range(n + 1, n + 90), 3)]] for _ in range(3)
        ]
        for args in inputs:
            rng.shuffle(args[0])
    # The answers' lengths differ by the form more than by the level.
    kind = (
        "slice"
        if word in ("first", "last", "skip")
        else "join"
        if word in ("add", "put")
        else "comprehension"
    )
    spec = _expression(var, _cases(inputs, solve))
    return sample(difficulty, f"py {var} {word} {n}", gold, spec, slips, kind=kind)


def strings(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`py s split ab>` -> `s.split('ab')`; the forgotten quotes are the systematic slip."""
    step = level(difficulty)
    var = rng.choice(PARAMETERS)
    a, b = names(rng, (2, 3, 3)[step], 2)
    word = rng.choice(
        (("add", "split", "cut"), ("add", "front", "split", "cut"), ("swap", "cut", "front"))[step]
    )
    made: dict[str, tuple[str, tuple[str, ...], Callable[[str], Any]]] = {
        "add": (f"{var}+'{a}'", (f"{var}+{a}", f"{var}.add('{a}')"), lambda v: v + a),
        "front": (f"'{a}'+{var}", (f"{a}+{var}", f"{var}+'{a}'"), lambda v: a + v),
        "split": (f"{var}.split('{a}')", (f"{var}.split({a})", f"split('{a}')"), lambda v: v.split(a)),
        "cut": (
            f"{var}.replace('{a}','')",
            (f"{var}.replace({a},'')", f"{var}.remove('{a}')"),
            lambda v: v.replace(a, ""),
        ),
        "swap": (
            f"{var}.replace('{a}','{b}')",
            (f"{var}.replace({a},{b})", f"{var}.replace('{b}','{a}')"),
            lambda v: v.replace(a, b),
        ),
    }
    gold, slips, solve = made[word]
    prompt = f"py {var} {word} {a} {b}" if word == "swap" else f"py {var} {word} {a}"
    texts = [f"{name(rng, 3)}{a}{name(rng, 2)}{a * rng.randint(0, 1)}{name(rng, 2)}" for _ in range(3)]
    return sample(
        difficulty, prompt, gold, _expression(var, _cases([[text] for text in texts], solve)), slips
    )


def dicts(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`py d get ab or 3>` -> `d.get('ab',3)`; look-ups, then new entries, then sums of two entries."""
    step = level(difficulty)
    var = rng.choice(PARAMETERS)
    a, b = names(rng, (2, 2, 3)[step], 2)
    n = rng.randint(2, 99)
    word = rng.choice((("at", "get"), ("get", "put"), ("sum", "put"))[step])
    made: dict[str, tuple[str, str, tuple[str, ...], Callable[[dict[str, int]], Any]]] = {
        "at": (f"at {a}", f"{var}['{a}']", (f"{var}[{a}]", f"{var}.{a}"), lambda v: v[a]),
        "get": (
            f"get {a} or {n}",
            f"{var}.get('{a}',{n})",
            (f"{var}.get({a},{n})", f"{var}['{a}',{n}]"),
            lambda v: v.get(a, n),
        ),
        "put": (
            f"put {a} {n}",
            f"{{**{var},'{a}':{n}}}",
            (f"{{**{var},{a}:{n}}}", f"{var}['{a}']={n}"),
            lambda v: {**v, a: n},
        ),
        "sum": (
            f"sum {a} {b}",
            f"{var}['{a}']+{var}['{b}']",
            (f"{var}[{a}]+{var}[{b}]", f"{var}['{a}','{b}']"),
            lambda v: v[a] + v[b],
        ),
    }
    ask, gold, slips, solve = made[word]
    inputs: list[list[Any]] = []
    for turn in range(4):
        entries = {key: rng.randint(100, 999) for key in (name(rng, 2), name(rng, 3), a, b)}
        if turn % 2 and word in ("get", "put"):
            del entries[a]
        inputs.append([entries])
    return sample(difficulty, f"py {var} {ask}", gold, _expression(var, _cases(inputs, solve)), slips)


def functions(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`def ab(c) plus 7>` -> `def ab(c):return c+7`; the forgotten `return` is the systematic slip."""
    step = level(difficulty)
    entry = name(rng, (2, 3, 3)[step])
    p, q = rng.sample(PARAMETERS, 2)
    word, op = rng.choice(sorted(OPERATORS.items()))
    if step == HARD:
        params, ask, body = [p, q], f"{p},{q}) {word}", f"{p}{op}{q}"
        # Unequal arguments: the swapped difference must be wrong everywhere.
        inputs = [rng.sample(range(3, 60), 2) for _ in range(4)]
        cases = _cases(inputs, lambda left, right: _apply(op, left, right))
    else:
        n = rng.randint(3, (9, 99)[step])
        params, ask, body = [p], f"{p}) {word} {n}", f"{p}{op}{n}"
        inputs = [[value] for value in rng.sample(range(3, 60), 4)]
        cases = _cases(inputs, lambda left: _apply(op, left, n))
    head = f"def {entry}({','.join(params)})"
    slips = (f"{head}:{body}", f"{head}return {body}", f"{head}:return {body.replace(op, SWAPPED[op])}")
    spec = {"entry": entry, "kind": "function", "params": params, "cases": cases}
    return sample(difficulty, f"def {entry}({ask}", f"{head}:return {body}", spec, slips)
