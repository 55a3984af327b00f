"""What a kind of constraint is. Invariant: a kind names every argument with its rule; an argument without a rule is an error.

Numeric kinds: `nearness`, 1 inside the wanted range and max(0, 1 - distance / scale) outside it; `scale` is the constraint's
own, default max(1, the bound that was missed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from services.verifier import specs
from services.verifier.families.constraints.seen import visible
from services.verifier.families.constraints.text import Text, has_word, split

Args = Mapping[str, Any]
Rule = Callable[[Any, str], object]
RELATIONS = ("at least", "less than", "at most", "exactly")
LARGEST = 1_000_000
MAX_PHRASE = 1_000
MAX_TEXT = 65_536
MAX_ITEMS = 100


@dataclass(frozen=True)
class Kind:
    """One kind of constraint."""

    check: Callable[[Text, Args], float]
    """Score of a text in [0, 1]; linear in the text."""
    needs: Mapping[str, Rule] = field(default_factory=dict)
    may: Mapping[str, Rule] = field(default_factory=dict)
    whole: Callable[[Args, str], object] | None = None
    """Raises SpecError where arguments that are each in order do not fit together."""
    bare: bool = False
    """Judged on a text without any letter or digit too; such a text scores 0 otherwise."""

    def score(self, text: Text, args: Args) -> float:
        """Score in [0, 1]; 0 for an answer that says nothing."""
        if not text.body or not (self.bare or text.said):
            return 0.0
        return min(1.0, max(0.0, float(self.check(text, args))))

    def check_arguments(self, args: dict[str, Any], where: str) -> None:
        """Raises SpecError unless the arguments are complete, known and in order."""
        specs.keys(args, ("id", "weight", *self.needs, *self.may), where)
        for name, rule in self.needs.items():
            rule(args.get(name), f"{where}.{name}")
        for name, rule in self.may.items():
            if name in args:
                rule(args[name], f"{where}.{name}")
        if self.whole is not None:
            self.whole(args, where)


def count(least: int = 0) -> Rule:
    """A whole number of at least `least`."""

    def rule(value: Any, where: str) -> object:
        if specs.whole(value, where, least=least) > LARGEST:
            raise specs.SpecError(f"{where} is {value}, {LARGEST} is the most")
        return value

    return rule


def scale(value: Any, where: str) -> object:
    """Distance from the wanted range at which the score is 0."""
    return specs.number(value, where, low=1e-6, high=1e6)


def percent(value: Any, where: str) -> object:
    """From 0 to 100."""
    return specs.number(value, where, low=0.0, high=100.0)


def phrase(value: Any, where: str) -> object:
    """A short text that is not blank."""
    if not visible(specs.text(value, where)).strip() or len(value) > MAX_PHRASE:
        raise specs.SpecError(f"{where} is blank or has more than {MAX_PHRASE} characters")
    return value


def word(value: Any, where: str) -> object:
    """A phrase with a letter or digit in it."""
    if not has_word(visible(str(phrase(value, where)))):
        raise specs.SpecError(f"{where} {value!r} has no letter or digit")
    return value


def one_word(value: Any, where: str) -> object:
    """A phrase of exactly one word."""
    if len(split(visible(str(phrase(value, where))))) != 1:
        raise specs.SpecError(f"{where} {value!r} is not one word")
    return value


def passage(value: Any, where: str) -> object:
    """A text of any form with a word in it."""
    if not has_word(visible(specs.text(value, where))) or len(value) > MAX_TEXT:
        raise specs.SpecError(f"{where} has no word or more than {MAX_TEXT} characters")
    return value


def phrases(value: Any, where: str) -> object:
    """A list of phrases, at least one."""
    for index, item in enumerate(specs.items(value, where, least=1)):
        phrase(item, f"{where}[{index}]")
    if len(value) > MAX_ITEMS:
        raise specs.SpecError(f"{where} has {len(value)} entries, {MAX_ITEMS} are allowed")
    return value


def letter(value: Any, where: str) -> object:
    """One character that is no white space."""
    if len(specs.text(value, where)) != 1 or not visible(value).strip():
        raise specs.SpecError(f"{where} must be one character that is seen, got {value!r}")
    return value


def relation(value: Any, where: str) -> object:
    """One of RELATIONS."""
    return specs.choice(value, RELATIONS, where)


def bounds(kind: Any, target: int) -> tuple[float, float]:
    """(least, most) that satisfy "at least 3" and its like."""
    if kind == "at least":
        return target, math.inf
    if kind == "exactly":
        return target, target
    return 0, target - 1 if kind == "less than" else target


def possible(name: str, how: str) -> Callable[[Args, str], object]:
    """A rule for all arguments: less than 0 of something cannot be."""

    def rule(args: Args, where: str) -> object:
        if args[how] == "less than" and args[name] == 0:
            raise specs.SpecError(f"{where} asks for less than 0, which no answer can be")
        return None

    return rule


def nearness(n: float, args: Args, low: float, high: float = math.inf) -> float:
    """1 if low <= n <= high, else max(0, 1 - distance / scale)."""
    if low <= n <= high:
        return 1.0
    missed = low if n < low else high
    return max(0.0, 1.0 - abs(n - missed) / float(args.get("scale", max(1.0, missed))))


def related(n: float, args: Args, name: str, how: str) -> float:
    """`nearness` to the range that argument `name` with relation `how` asks for."""
    return nearness(n, args, *bounds(args[how], args[name]))


def share(right: int, of: int) -> float:
    """Right / of, 0 of nothing."""
    return right / of if of else 0.0


def agreement(have: list[str], want: list[str]) -> float:
    """Share of places that agree, over the longer of the two lists."""
    return share(sum(a == b for a, b in zip(have, want, strict=False)), max(len(have), len(want)))
