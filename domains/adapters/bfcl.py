"""Records of the Berkeley function-calling leaderboard as tasks. Invariant: a record becomes a whole task or is refused by name.

Reads the question files `BFCL_v*_KIND.json` of a folder and the ground truth beside them in `possible_answer/`; kinds simple,
multiple, parallel, parallel_multiple and irrelevance, live ones too. Answers are JSON lists of calls, in any order, compared as
the leaderboard does: texts loosely, a value right if it is one of those listed, "" in a list for a parameter that may be
absent. Unlike there, schemas bind at every depth, calls are matched at best and not greedily, and where no function fits only
an empty list is right, so that an answer nobody can read earns nothing.

`python -m domains.adapters.bfcl FOLDER > tasks.jsonl` writes the data set that a card of family `call` takes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from domains.adapters.bfcl_values import RefusedError, alternatives_of, example, parameters
from schemas.tasks import Sample

FILE = re.compile(r"BFCL_v\d+_([a-z_]+)\.json")
DIFFICULTY = {"simple": 0.0, "irrelevance": 0.25, "multiple": 0.5, "parallel": 0.75, "parallel_multiple": 1.0}
LANGUAGES = ("_python", "_java", "_javascript")
ASK = (
    "You can call these functions:\n{functions}\n\n{talk}\n\n"
    'Answer with only a JSON list of calls, each {{"name": ..., "arguments": {{...}}}}. If no function fits, answer [].'
)


class BrokenFileError(ValueError):
    """A file that is not what its name says; the message names it."""


@dataclass(frozen=True)
class Record:
    """One question with its ground truth; `truth` is None for a kind that has none."""

    kind: str
    id: str
    question: list[Any]
    functions: list[dict[str, Any]]
    truth: list[dict[str, Any]] | None


def kind_of(category: str) -> str:
    """The kind of task in a category such as `live_parallel` or `simple_java`. Raises RefusedError."""
    kind = category.removeprefix("live_")
    for language in LANGUAGES:
        kind = kind.removesuffix(language)
    if kind == "relevance":
        raise RefusedError("relevance records have no ground truth: any call at all would be right")
    if kind not in DIFFICULTY:
        raise RefusedError(f"category {category} needs the leaderboard's own code or services to be judged")
    return kind


def sample(record: Record) -> Sample:
    """The task of a record. Raises RefusedError."""
    functions: list[dict[str, Any]] = []
    want: list[dict[str, Any]] = []
    gold: list[dict[str, Any]] = []
    by_name = {str(each.get("name")): each for each in record.functions}
    if len(by_name) != len(record.functions) or not by_name:
        raise RefusedError("no function is offered, or two of one name")
    truths: dict[str, dict[str, list[Any]]] = {}
    for call in record.truth or []:
        if len(call) != 1:
            raise RefusedError("a ground truth of several names for one call")
        ((name, values),) = call.items()
        if name not in by_name:
            raise RefusedError(f"ground truth calls {name}, which is not offered")
        for key, options in values.items():
            truths.setdefault(name, {}).setdefault(key, []).extend(
                options if isinstance(options, list) else [options]
            )
    for name, function in by_name.items():
        functions.append({"name": name, "parameters": parameters(function, truths.get(name, {}))})
    for call in record.truth or []:
        ((name, values),) = call.items()
        described = by_name[name]["parameters"]
        known, needed = described.get("properties", {}), described.get("required", [])
        odd = sorted(set(values) - set(known))
        if odd:
            raise RefusedError(f"ground truth names {odd[0]}, which {name} does not take")
        lacking = sorted(set(needed) - set(values))
        if lacking:
            raise RefusedError(f"ground truth lacks {lacking[0]}, which {name} needs")
        slots = alternatives_of(values, known, needed)
        want.append({"name": name, "accept": slots})
        gold.append({"name": name, "arguments": example(slots)})
    if (record.truth is None) != (record.kind == "irrelevance"):
        raise RefusedError("no ground truth, or one where there should be none")
    spec = {"syntax": "json", "text": "loose", "functions": functions, "want": want}
    offered = [
        {
            "name": each["name"],
            "description": by_name[each["name"]].get("description", ""),
            "parameters": each["parameters"],
        }
        for each in functions
    ]
    prompt = ASK.format(
        functions="\n".join(json.dumps(each, ensure_ascii=False) for each in offered),
        talk=talk(record.question),
    )
    right = json.dumps(gold, ensure_ascii=False)
    slips = ("[]",) if want else ("None of these functions can do that.", _hasty(functions[0]))
    return Sample(
        prompt=prompt,
        spec=spec,
        gold=right,
        slips=slips,
        difficulty=DIFFICULTY[record.kind],
        kind=record.kind,
    )


def _hasty(function: dict[str, Any]) -> str:
    return json.dumps([{"name": function["name"], "arguments": {}}], ensure_ascii=False)


def talk(question: list[Any]) -> str:
    """The messages of a record's only turn, one paragraph each. Raises RefusedError."""
    if len(question) != 1 or not isinstance(question[0], list) or not question[0]:
        raise RefusedError(f"a question of {len(question)} turns, one is supported")
    messages = question[0]
    if not all(isinstance(each, dict) and str(each.get("content", "")).strip() for each in messages):
        raise RefusedError("a message without text")
    return "\n\n".join(
        f"{str(each.get('role', 'user')).capitalize()}: {each['content']}" for each in messages
    )


def files(folder: Path) -> list[tuple[str, Path]]:
    """(category, question file) of `folder`, sorted."""
    found = [(FILE.fullmatch(path.name), path) for path in sorted(folder.glob("BFCL_v*.json"))]
    return [(match[1], path) for match, path in found if match]


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise BrokenFileError(f"{path}, line {number}: not JSON: {error}") from error
    return rows


def convert(folder: Path) -> Iterator[tuple[str, str, Sample | str]]:
    """(category, id, sample or the reason why there is none) of every record; a file of another kind is refused whole, id "*".

    Raises:
        OSError: a file cannot be read.
        BrokenFileError: a file is no JSON Lines, or a record lacks `id` or `question`.
    """
    for category, path in files(folder):
        try:
            kind = kind_of(category)
        except RefusedError as error:
            yield category, "*", str(error)
            continue
        answers = path.parent / "possible_answer" / path.name
        truths = {row["id"]: row["ground_truth"] for row in _rows(answers)} if answers.is_file() else {}
        for row in _rows(path):
            if not isinstance(row.get("id"), str) or not isinstance(row.get("question"), list):
                raise BrokenFileError(f"{path}: a record without `id` or `question`")
            record = Record(kind, row["id"], row["question"], row.get("function", []), truths.get(row["id"]))
            try:
                yield category, row["id"], sample(record)
            except RefusedError as error:
                yield category, row["id"], str(error)


def main(argv: list[str] | None = None) -> int:
    """Write the data set of a folder to standard output, and what became of its records to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m domains.adapters.bfcl", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path, help="with BFCL_v*.json and possible_answer/")
    parser.add_argument(
        "--kind", action="append", choices=sorted(DIFFICULTY), help="only this kind (may be repeated)"
    )
    given = parser.parse_args(argv)
    made: Counter[str] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    try:
        for category, _, result in convert(given.folder):
            if isinstance(result, str):
                refused[category, result] += 1
            elif given.kind is None or kind_of(category) in given.kind:
                made[category] += 1
                sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    except (OSError, BrokenFileError) as error:
        sys.stderr.write(f"{given.folder}: {error}\n")
        return 2
    if not made:
        sys.stderr.write(f"{given.folder}: no record became a task; is this the folder with BFCL_v*.json?\n")
    for category, count in sorted(made.items()):
        sys.stderr.write(f"{category}: {count} tasks\n")
    for (category, reason), count in sorted(refused.items()):
        sys.stderr.write(f"{category}: {count} refused: {reason}\n")
    return 0 if made else 2


if __name__ == "__main__":
    raise SystemExit(main())
