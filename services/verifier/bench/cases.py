"""The four pieces of work and the commands that do the same without Temper. Invariant: the same task, answer and Python flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.cards import Card, parse_card
from schemas.tasks import Task

PYTHON = ("/usr/bin/python3", "-S", "-s", "-B")
ANSWER = """def f(numbers):
    counts = {}
    for n in numbers:
        counts[n] = counts.get(n, 0) + 1
    return [[n, counts[n]] for n in sorted(counts)]
"""
INPUTS = [[(seed * 7 + n * n) % 11 for n in range(12)] for seed in range(20)]
PROSE = "\n".join(
    f"- The committee met on day {n} and wrote down what it had seen; nobody asked for more."
    for n in range(16)
)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of verdict: its task, card and an answer that scores 1. `count`: verdicts a round for each process."""

    name: str
    title: str
    count: int
    card: Card
    task: Task
    answer: bytes


def expected(numbers: list[int]) -> list[list[int]]:
    """What the answer's function returns."""
    return [[n, numbers.count(n)] for n in sorted(set(numbers))]


def case(
    name: str, title: str, count: int, family: str, spec: dict[str, Any], answer: str, settings: str = ""
) -> Case:
    """A case with a card of the default limits."""
    text = f'name="bench.{name}"\nlayer="tool"\nsummary="{title}"\ngenerator="m:f"\n[verifier]\nfamily="{family}"\n{settings}'
    task = Task(id=f"bench-{name}", domain=f"bench.{name}", prompt=title, spec=spec)
    return Case(name, title, count, parse_card(text, name), task, answer.encode())


CODE = {
    "entry": "f",
    "kind": "function",
    "params": ["numbers"],
    "cases": [{"args": [numbers], "want": expected(numbers)} for numbers in INPUTS],
}
FORMAT = {
    "constraints": [
        {"id": "keywords:existence", "words": ["committee", "nobody"]},
        {"id": "keywords:forbidden", "words": ["however"]},
        {"id": "list:bullets", "count": 16},
        {"id": "punctuation:no_comma"},
    ]
}


def file(path: str, text: str) -> dict[str, str]:
    """A check that a file holds this text."""
    return {"kind": "file", "path": path, "text": text}


STAGES = {
    "files": {"in": "1\n"},
    "stages": [
        {"name": "copy", "weight": 1.0, "checks": [file("a", "1\n")]},
        {"name": "double", "weight": 1.0, "checks": [file("a", "1\n"), file("b", "1\n1\n")]},
        {"name": "tidy", "weight": 1.0, "checks": [{"kind": "absent", "path": "a"}, file("b", "1\n1\n")]},
    ],
}
SHARED = '[verifier.settings]\nisolate="none"\n'
TRUE = "true"
"""The case without a family: one run of /bin/true in the slot."""
TRUE_COUNT = 60
CASES = (
    case("python20", "one Python file, 20 cases in one process", 10, "code", CODE, ANSWER, SHARED),
    case("python20each", "one Python file, 20 cases, a process each", 8, "code", CODE, ANSWER),
    case("format", "a format check", 400, "format", FORMAT, PROSE),
    case("stages3", "a terminal task of 3 stages", 12, "stages", STAGES, "cp in a\ncat a a >b\nrm a"),
)
SAME = {"python20each": "python20"}
"""Case -> the case whose peers do its work."""


def all_at_once() -> tuple[str, ...]:
    """A command that runs the answer on all inputs in one process."""
    return (*PYTHON, "-c", f"{ANSWER}\nfor case in {INPUTS!r}: print(f(case))")


def one_by_one() -> list[tuple[str, ...]]:
    """Commands that run it on one input each."""
    return [(*PYTHON, "-c", f"{ANSWER}\nprint(f({numbers!r}))") for numbers in INPUTS]
