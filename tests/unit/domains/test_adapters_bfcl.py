"""Records in the leaderboard's format become tasks whose gold answer passes, and nothing that cannot be judged does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from domains.adapters import bfcl
from schemas.cards import parse_card
from schemas.tasks import Sample, Task
from services.runtime.catalog import Catalog
from services.verifier.engine import judge
from services.verifier.jail import Jail

CARD = parse_card(
    'name = "t.call"\nlayer = "tool"\nsummary = "s"\ngenerator = "a:b"\n[verifier]\nfamily = "call"\n', "card"
)


def described(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Does {name}.",
        "parameters": {"type": "dict", "properties": properties, "required": required},
    }


MUG = described(
    "shop.order",
    ["item"],
    item={"type": "string", "description": "What."},
    count={"type": "integer", "default": 1, "optional": True},
    price={"type": "float"},
    colour={"type": "string", "enum": ["red", "blue"]},
    tags={"type": "array", "items": {"type": "string"}},
    buyer={"type": "dict", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}},
    lines={"type": "array", "items": {"type": "dict", "properties": {"sku": {"type": "string"}}}},
    size={"type": "tuple", "items": {"type": "float"}},
    extra={"type": "any"},
)
PING = described("ping", [])
ROWS: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "BFCL_v4_simple_python.json": [
        ({"function": [MUG]}, [{"shop.order": {"item": ["mug"], "count": [2, ""], "colour": ["blue", ""]}}]),
        ({"function": [MUG]}, [{"shop.order": {"item": ["mug"], "price": [3.0], "size": [[1.0, 2.5]], "extra": ["x", 1]}}]),
        ({"function": [MUG]}, [{"shop.order": {"item": ["mug"], "buyer": [{"name": ["Ann", "Anna"], "age": [30, ""]}]}}]),
        ({"function": [MUG]}, [{"shop.order": {"item": ["mug"], "lines": [[{"sku": ["a-1"]}, {"sku": ["b"]}]]}}]),
        ({"function": [MUG]}, [{"shop.order": {"item": ["mug"], "count": ["number_of_mugs"], "tags": [["a"], ["b", "c"]]}}]),
        ({"function": [PING]}, [{"ping": {}}]),
    ],
    "BFCL_v4_live_parallel_multiple.json": [
        ({"function": [MUG, PING]}, [{"shop.order": {"item": ["mug"]}}, {"ping": {}}, {"shop.order": {"item": ["cup"]}}]),
    ],
    "BFCL_v4_irrelevance.json": [({"function": [MUG]}, None)],
}  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("simple_python", {"function": [MUG]}, [{"shop.order": {"item": ["mug"], "weight": [1]}}], "weight"),
    ("simple_python", {"function": [MUG]}, [{"shop.order": {"count": [1]}}], "lacks item"),
    ("simple_python", {"function": [MUG]}, [{"other": {}}], "not offered"),
    (
        "simple_python",
        {"function": [MUG]},
        [{"shop.order": {"item": ["mug"], "colour": ["green"]}}],
        "forbids",
    ),
    ("simple_python", {"function": [MUG]}, [{"shop.order": {"item": ["mug"], "tags": [[1]]}}], "forbids"),
    ("simple_python", {"function": [MUG]}, [{"shop.order": {"item": []}}], "without a list"),
    ("simple_python", {"function": []}, [{"shop.order": {"item": ["mug"]}}], "no function"),
    ("simple_python", {"function": [PING, PING]}, [{"ping": {}}], "two of one name"),
    ("simple_python", {"function": [MUG]}, None, "no ground truth"),
    ("irrelevance", {"function": [MUG]}, [{"ping": {}}], "not offered"),
    ("simple_python", {"function": [PING], "question": [[], []]}, [{"ping": {}}], "2 turns"),
    (
        "simple_python",
        {"function": [PING], "question": [[{"role": "user", "content": " "}]]},
        [{"ping": {}}],
        "without text",
    ),
    ("live_relevance", {"function": [PING]}, None, "any call at all"),
    ("multi_turn_base", {"function": [PING]}, None, "own code"),
]


def write(folder: Path, name: str, rows: list[tuple[dict[str, Any], Any]]) -> None:
    (folder / "possible_answer").mkdir(exist_ok=True)
    asked, truths = [], []
    for index, (row, truth) in enumerate(rows):
        name_of = f"{name}_{index}"
        question = [[{"role": "user", "content": f"Please do number {index}."}]]
        asked.append({"id": name_of, "question": question} | row)
        if truth is not None:
            truths.append({"id": name_of, "ground_truth": truth})
    (folder / name).write_text("\n".join(map(json.dumps, asked)) + "\n")
    if truths:
        (folder / "possible_answer" / name).write_text("\n".join(map(json.dumps, truths)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, rows in ROWS.items():
        write(tmp_path, name, rows)
    return tmp_path


def samples(folder: Path) -> list[Sample]:
    made = [result for _, _, result in bfcl.convert(folder)]
    assert not [each for each in made if isinstance(each, str)]
    return cast("list[Sample]", made)


def score(made: Sample, answer: str) -> float:
    verdict = judge(
        Task(id="t", domain="t.call", prompt="p", spec=made.spec), CARD, answer.encode(), cast("Jail", None)
    )
    assert verdict.outcome != "infra", verdict.evidence
    assert verdict.score is not None
    return verdict.score


def test_gold_passes_and_nothing_else_does(folder: Path) -> None:
    for made in samples(folder):
        assert score(made, made.gold) == 1.0, made
        assert score(made, "") == 0.0
        assert score(made, "abc") == 0.0
        for slip in made.slips:
            assert score(made, slip) == 0.0
        calls = json.loads(made.gold)
        for call in calls:
            call["name"] += "x"
        if calls:
            assert score(made, json.dumps(calls)) <= 0.2


def test_every_acceptable_value_is_accepted_and_no_other(folder: Path) -> None:
    made = samples(folder)[2:]  # after the other kinds, by name of file

    def answer(**arguments: Any) -> str:
        return json.dumps([{"name": "shop.order", "arguments": {"item": "mug", **arguments}}])

    for right in ({}, {"count": 2}, {"colour": "blue"}, {"item": "MUG", "count": 2}):
        assert score(made[0], answer(**right)) == 1.0, right
    for wrong in ({"count": 3}, {"count": "2"}, {"colour": "red"}, {"colour": ""}, {"price": 1.0}):
        assert score(made[0], answer(**wrong)) < 1.0, wrong
    for right in (
        {"price": 3, "size": [1, 2.5], "extra": "x"},
        {"price": 3.0, "size": [1.0, 2.5], "extra": 1},
    ):
        assert score(made[1], answer(**right)) == 1.0, right
    assert score(made[1], answer(price=3, size=[2.5, 1], extra="x")) < 1.0
    for buyer in ({"name": "Anna"}, {"name": "Ann", "age": 30}):
        assert score(made[2], answer(buyer=buyer)) == 1.0, buyer
    for buyer in ({}, {"name": "Anna", "age": 31}, {"name": "Anna", "town": "x"}):
        assert score(made[2], answer(buyer=buyer)) < 1.0, buyer
    assert score(made[3], answer(lines=[{"sku": "a1"}, {"sku": "B"}])) == 1.0
    assert score(made[3], answer(lines=[{"sku": "b"}, {"sku": "a-1"}])) < 1.0
    assert score(made[4], answer(count="number_of_mugs", tags=["b", "c"])) == 1.0
    assert score(made[4], answer(count=3, tags=["a"])) < 1.0


@pytest.mark.parametrize(("category", "row", "truth", "said"), REFUSED)
def test_a_record_that_cannot_be_judged_is_refused(
    tmp_path: Path, category: str, row: dict[str, Any], truth: Any, said: str
) -> None:
    write(tmp_path, f"BFCL_v4_{category}.json", [(row, truth)])
    ((found, _, reason),) = bfcl.convert(tmp_path)
    assert found == category
    assert isinstance(reason, str)
    assert said in reason


def test_the_command_writes_the_data_set_of_a_card(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "BFCL_v4_multiple.json", [({"function": [PING, MUG]}, [{"pong": {}}])])
    assert bfcl.main([str(folder)]) == 0
    out, err = capsys.readouterr()
    rows = [msgspec.json.decode(line, type=Sample) for line in out.splitlines()]
    assert len(rows) == 8
    assert "simple_python: 6 tasks" in err
    assert "multiple: 1 refused: ground truth calls pong, which is not offered" in err
    (tmp_path / "calls.jsonl").write_text(out)
    (tmp_path / "calls.toml").write_text(
        'name = "t.calls"\nlayer = "tool"\nsummary = "s"\ndataset = "calls.jsonl"\n[verifier]\nfamily = "call"\n'
    )
    drawn = Catalog.load([tmp_path]).sample("t.calls", split="train", seed=0, count=3)
    assert len({each.task.prompt for each in drawn}) == 3
    assert bfcl.main([str(folder), "--kind", "irrelevance"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_bad_input_is_one_line_that_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bfcl.main([str(tmp_path)]) == 2
    assert "no record became a task" in capsys.readouterr().err
    (tmp_path / "BFCL_v4_multiple.json").write_text('{"id": "a", "question": []}\n{broken\n')
    assert bfcl.main([str(tmp_path)]) == 2
    assert "line 2: not JSON" in capsys.readouterr().err
    (tmp_path / "BFCL_v4_multiple.json").write_text('{"id": "a"}\n')
    assert bfcl.main([str(tmp_path)]) == 2
    assert "without `id` or `question`" in capsys.readouterr().err
