"""Form constraints on a text. Invariant: every constraint is checked, an unknown id is an error, nothing passes by default.

The text is data: words are runs of letters and digits (apostrophe and hyphen inside count), lines are non-blank lines,
and every check is linear in the text, without regular expressions. Numeric constraints are continuous:
max(0, 1 - |n - target| / scale) with `scale` from the constraint, default max(1, target). Score: the weighted mean of the
constraints.
"""

# ruff: noqa: ARG001, ARG005 (JSON data has no narrower type; families and checks have one signature each)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.tasks import Task
from schemas.verdicts import Part, Verdict, clip, scored
from services.verifier import specs
from services.verifier.answers import decode
from services.verifier.jail import Jail, Limits
from services.verifier.values import ValueFormatError, parse_json

Check = Callable[[str, dict[str, Any]], float]


def words(text: str) -> list[str]:
    """The words of `text`, in order and as written."""
    found: list[str] = []
    current: list[str] = []
    for index, char in enumerate(text):
        inside = char in "'-" and current and index + 1 < len(text) and text[index + 1].isalnum()
        if char.isalnum() or inside:
            current.append(char)
        elif current:
            found.append("".join(current))
            current = []
    if current:
        found.append("".join(current))
    return found


def count_of(text: str, phrase: str) -> int:
    """How often `phrase` occurs as a whole run of words, ignoring case, without overlap."""
    have = [word.casefold() for word in words(text)]
    want = [word.casefold() for word in words(phrase)]
    if not want:
        return text.count(phrase)
    found = at = 0
    while at + len(want) <= len(have):
        if have[at : at + len(want)] == want:
            found += 1
            at += len(want)
        else:
            at += 1
    return found


def closeness(n: int, args: dict[str, Any], target: int) -> float:
    """max(0, 1 - |n - target| / scale)."""
    return max(0.0, 1.0 - abs(n - target) / float(args.get("scale", max(1, target))))


def _existence(text: str, args: dict[str, Any]) -> float:
    return sum(count_of(text, word) > 0 for word in args["words"]) / len(args["words"])


def _frequency(text: str, args: dict[str, Any]) -> float:
    return closeness(count_of(text, args["word"]), args, args["count"])


def _forbidden(text: str, args: dict[str, Any]) -> float:
    return sum(count_of(text, word) == 0 for word in args["words"]) / len(args["words"])


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _cased(text: str, *, upper: bool) -> float:
    letters = [char for char in text if char.isupper() or char.islower()]
    return sum(char.isupper() == upper for char in letters) / len(letters) if letters else 0.0


def _quotes(text: str, args: dict[str, Any]) -> float:
    body = text.strip()
    return float(len(body.strip('"')) > 0 and body[0] == body[-1] == '"' and '"' not in body[1:-1])


def _bullets(text: str, args: dict[str, Any]) -> float:
    lines = _lines(text)
    bullets = sum(line.startswith(("- ", "* ")) and bool(line[2:].strip()) for line in lines)
    return closeness(bullets, args, args["count"]) * bullets / len(lines)


def _json(text: str, args: dict[str, Any]) -> float:
    try:
        value = parse_json(text.strip())
    except ValueFormatError:
        return 0.0
    keys = args.get("keys")
    if keys is None:
        return 1.0
    if not isinstance(value, dict):
        return 0.0
    union = set(value) | set(keys)
    return len(set(value) & set(keys)) / len(union) if union else 1.0


def _repeat(text: str, args: dict[str, Any]) -> float:
    have, want = text.split(), args["text"].split()
    full = len(have) // len(want)
    copies = sum(have[i * len(want) : (i + 1) * len(want)] == want for i in range(full))
    # Copies among what was written: padding between or after them lowers the score.
    return closeness(copies, args, args["count"]) * float(copies * len(want)) / len(have)


def _matches(have: list[str], want: list[str]) -> float:
    """Share of places that agree, over the longer of the two lists."""
    return sum(a == b for a, b in zip(have, want, strict=False)) / max(len(have), len(want))


def _sorted(text: str, args: dict[str, Any]) -> float:
    parts = [part.strip() for part in text.replace("\n", ",").replace(",", " ").split()]
    items = [str(item) for item in args["items"]]
    numeric = all(isinstance(item, int | float) for item in args["items"])
    want = [str(item) for item in sorted(args["items"])] if numeric else sorted(items)
    return _matches(parts, want)


def _joined(text: str, args: dict[str, Any]) -> float:
    body, sep, items = text.strip(), args["sep"], args["items"]
    if body == sep.join(items):
        return 1.0
    # Items in place count half at most: the separator is what was asked for.
    return 0.5 * _matches(body.split(sep), items) if len(items) > 1 and sep in body else 0.0


def _no_comma(text: str, args: dict[str, Any]) -> float:
    return float("," not in text)


CHECKS: dict[str, tuple[Check, tuple[str, ...], tuple[str, ...]]] = {
    "keywords:existence": (_existence, ("words",), ()),
    "keywords:frequency": (_frequency, ("word", "count"), ("scale",)),
    "keywords:forbidden": (_forbidden, ("words",), ()),
    "length:words": (lambda text, a: closeness(len(words(text)), a, a["count"]), ("count",), ("scale",)),
    "length:lines": (lambda text, a: closeness(len(_lines(text)), a, a["count"]), ("count",), ("scale",)),
    "case:upper": (lambda text, a: _cased(text, upper=True), (), ()),
    "case:lower": (lambda text, a: _cased(text, upper=False), (), ()),
    "start:with": (lambda text, a: float(text.lstrip().startswith(a["text"])), ("text",), ()),
    "end:with": (lambda text, a: float(text.rstrip().endswith(a["text"].rstrip())), ("text",), ()),
    "punctuation:no_comma": (_no_comma, (), ()),
    "wrap:quotes": (_quotes, (), ()),
    "list:bullets": (_bullets, ("count",), ("scale",)),
    "json:valid": (_json, (), ("keys",)),
    "repeat:times": (_repeat, ("text", "count"), ("scale",)),
    "sort:ascending": (_sorted, ("items",), ()),
    "sep:joined": (_joined, ("items", "sep"), ()),
}
"""id -> (check, required arguments, optional arguments)."""


def check_spec(spec: dict[str, Any], settings: dict[str, Any]) -> None:
    """`constraints` [{`id`, its arguments, `weight`}], at least one. No settings. Raises SpecError."""
    specs.keys(settings, (), "verifier.settings")
    for index, constraint in enumerate(specs.items(spec.get("constraints"), "spec.constraints", least=1)):
        where = f"spec.constraints[{index}]"
        name = specs.choice(specs.table(constraint, where).get("id"), tuple(CHECKS), f"{where}.id")
        _, required, optional = CHECKS[name]
        specs.keys(constraint, ("id", "weight", *required, *optional), where)
        specs.number(constraint.get("weight", 1.0), f"{where}.weight", low=1e-6, high=1e6)
        for key in (*required, *(key for key in optional if key in constraint)):
            _check_argument(name, key, constraint.get(key), f"{where}.{key}")


def _check_argument(name: str, key: str, value: Any, where: str) -> None:
    if key == "count":
        specs.whole(value, where, least=0 if name == "keywords:frequency" else 1)
    elif key == "scale":
        specs.number(value, where, low=1e-6, high=1e6)
    elif key in ("words", "keys"):
        specs.texts(value, where, least=1)
    elif key == "items":
        kinds = {type(item) for item in specs.items(value, where, least=1)}
        if kinds != {str} and (name == "sep:joined" or not kinds <= {int, float}):
            raise specs.SpecError(
                f"{where} must hold texts" + ("" if name == "sep:joined" else " or numbers, not both")
            )
    elif key == "text" and name == "repeat:times" and not str(value).strip():
        raise specs.SpecError(f"{where} is blank")
    else:
        specs.text(value, where)


def verify(task: Task, settings: dict[str, Any], limits: Limits, submission: bytes, jail: Jail) -> Verdict:
    """One part a constraint. Raises UnusableAnswerError; an empty answer scores 0 whatever is asked."""
    text = decode(submission)
    return scored(
        Part(
            name=clip(constraint["id"], 80),
            weight=float(constraint.get("weight", 1.0)),
            score=min(1.0, max(0.0, CHECKS[constraint["id"]][0](text, constraint))),
        )
        for constraint in task.spec["constraints"]
    )
