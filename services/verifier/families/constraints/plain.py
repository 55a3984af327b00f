"""The family's own kinds, made for short drills. Invariant: their verdicts never change; wider needs get a kind of their own.

Words are runs of letters and digits (apostrophe and hyphen inside count), lines are non-blank lines. Numeric kinds score
max(0, 1 - |n - count| / scale) with `scale` from the constraint, default max(1, count).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.verifier import specs
from services.verifier.families.constraints import text as texts
from services.verifier.families.constraints.kinds import Args, Kind, Rule, agreement, scale, share
from services.verifier.families.constraints.seen import fold
from services.verifier.families.constraints.text import Text
from services.verifier.values import ValueFormatError, parse_json


def words(text: str) -> list[str]:
    """The words of `text`, in order and as written."""
    return texts.split(text, marks=False)


def count_of(text: str, phrase: str) -> int:
    """How often `phrase` occurs as a whole run of words, ignoring case, without overlap."""
    want = [fold(word) for word in words(phrase)]
    return texts.runs([fold(word) for word in words(text)], want) if want else text.count(phrase)


def closeness(n: int, args: Args) -> float:
    """max(0, 1 - |n - count| / scale)."""
    at_zero = float(args.get("scale", max(1, args["count"])))
    return max(0.0, 1.0 - abs(n - int(args["count"])) / at_zero)


def _existence(text: str, args: Args) -> float:
    return share(sum(count_of(text, word) > 0 for word in args["words"]), len(args["words"]))


def _forbidden(text: str, args: Args) -> float:
    return share(sum(count_of(text, word) == 0 for word in args["words"]), len(args["words"]))


def _cased(text: str, *, upper: bool) -> float:
    letters = [char for char in text if char.isupper() or char.islower()]
    return sum(char.isupper() == upper for char in letters) / len(letters) if letters else 0.0


def _quotes(text: str) -> float:
    body = text.strip()
    return float(len(body.strip('"')) > 0 and body[0] == body[-1] == '"' and '"' not in body[1:-1])


def _bullets(text: Text, args: Args) -> float:
    bullets = sum(line.startswith(("- ", "* ")) and bool(line[2:].strip()) for line in text.lines)
    return closeness(bullets, args) * bullets / len(text.lines)


def _json(text: str, args: Args) -> float:
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


def _repeat(text: str, args: Args) -> float:
    have, want = text.split(), args["text"].split()
    full = len(have) // len(want)
    copies = sum(have[i * len(want) : (i + 1) * len(want)] == want for i in range(full))
    # Copies among what was written: padding between or after them lowers the score.
    return closeness(copies, args) * float(copies * len(want)) / len(have)


def _sorted(text: str, args: Args) -> float:
    parts = [part.strip() for part in text.replace("\n", ",").replace(",", " ").split()]
    items = [str(item) for item in args["items"]]
    numeric = all(isinstance(item, int | float) for item in args["items"])
    want = [str(item) for item in sorted(args["items"])] if numeric else sorted(items)
    return agreement(parts, want)


def _joined(text: str, args: Args) -> float:
    body, sep, items = text.strip(), args["sep"], args["items"]
    if body == sep.join(items):
        return 1.0
    # Items in place count half at most: the separator is what was asked for.
    return 0.5 * agreement(body.split(sep), items) if len(items) > 1 and sep in body else 0.0


def _at_least(least: int) -> Rule:
    return lambda value, where: specs.whole(value, where, least=least)


def _words(value: Any, where: str) -> object:
    return specs.texts(value, where, least=1)


def _copied(value: Any, where: str) -> object:
    if not str(value).strip():
        raise specs.SpecError(f"{where} is blank")
    return specs.text(value, where)


def _items(value: Any, where: str) -> object:
    kinds = {type(item) for item in specs.items(value, where, least=1)}
    if kinds != {str} and not kinds <= {int, float}:
        raise specs.SpecError(f"{where} must hold texts or numbers, not both")
    return value


def _parts(value: Any, where: str) -> object:
    if any(not isinstance(item, str) for item in specs.items(value, where, least=1)):
        raise specs.SpecError(f"{where} must hold texts")
    return value


def _kind(
    check: Callable[[Text, Args], float],
    needs: dict[str, Rule] | None = None,
    may: dict[str, Rule] | None = None,
) -> Kind:
    return Kind(check, needs or {}, may or {}, bare=True)


SCALE: dict[str, Rule] = {"scale": scale}
COUNT: dict[str, Rule] = {"count": _at_least(1)}
KINDS: dict[str, Kind] = {
    "keywords:existence": _kind(lambda t, a: _existence(t.raw, a), {"words": _words}),
    "keywords:frequency": _kind(
        lambda t, a: closeness(count_of(t.raw, a["word"]), a),
        {"word": specs.text, "count": _at_least(0)},
        SCALE,
    ),
    "keywords:forbidden": _kind(lambda t, a: _forbidden(t.raw, a), {"words": _words}),
    "length:words": _kind(lambda t, a: closeness(len(words(t.raw)), a), COUNT, SCALE),
    "length:lines": _kind(lambda t, a: closeness(len(t.lines), a), COUNT, SCALE),
    "case:upper": _kind(lambda t, _: _cased(t.raw, upper=True)),
    "case:lower": _kind(lambda t, _: _cased(t.raw, upper=False)),
    "start:with": _kind(lambda t, a: float(t.raw.lstrip().startswith(a["text"])), {"text": specs.text}),
    "end:with": _kind(lambda t, a: float(t.raw.rstrip().endswith(a["text"].rstrip())), {"text": specs.text}),
    "wrap:quotes": _kind(lambda t, _: _quotes(t.raw)),
    "list:bullets": _kind(_bullets, COUNT, SCALE),
    "json:valid": _kind(lambda t, a: _json(t.raw, a), {}, {"keys": _words}),
    "repeat:times": _kind(lambda t, a: _repeat(t.raw, a), {"text": _copied, **COUNT}, SCALE),
    "sort:ascending": _kind(lambda t, a: _sorted(t.raw, a), {"items": _items}),
    "sep:joined": _kind(lambda t, a: _joined(t.raw, a), {"items": _parts, "sep": specs.text}),
}
