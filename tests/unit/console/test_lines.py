"""What `temper submit` reads: each wrong line is named, and nothing in a line is passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.tasks import TaskSubmitted
from services.console.errors import WRONG_USE, ConsoleError
from services.console.lines import submissions

TASK = {"id": "t1", "domain": "a.b", "prompt": "p"}


def read(tmp_path: Path, text: bytes | str, priority: int = 0) -> list[TaskSubmitted]:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(submissions(path, priority))


def test_characters_that_only_python_takes_for_line_ends_stay_in_the_prompt(tmp_path: Path) -> None:
    prompts = [f"a{end}b" for end in ("\u2028", "\u2029", "\x85")]
    lines = [json.dumps({**TASK, "prompt": prompt}, ensure_ascii=False) for prompt in prompts]
    found = read(tmp_path, "\ufeff" + "\r\n".join(lines) + "\n\n")
    assert [each.task.prompt for each in found] == prompts


def test_a_line_may_say_what_stands_beside_a_task(tmp_path: Path) -> None:
    own = {"task": TASK, "priority": 7, "idempotency_key": "k"}
    plain, beside = read(tmp_path, f"{json.dumps(TASK)}\n{json.dumps(own)}", priority=3)
    assert (plain.priority, plain.idempotency_key) == (3, "")
    assert (beside.priority, beside.idempotency_key) == (7, "k")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (json.dumps({**TASK, "priority": 5}), '`priority`: it stands beside "task"'),
        (json.dumps({**TASK, "deadline": 5}), "`deadline`: no field of a task"),
        (json.dumps({"task": TASK, "deadline": -1}), "`deadline`: no field of a task"),
        (json.dumps({"task": TASK, "priority": 101}), "<= 100"),
        ('{"task": {"id": "t", "domain": "a.b", "prompt": "p"}, "priority": 1e400}', "range"),
        ('{"task": {"id": "t", "domain": "a.b", "prompt": "p"}, "priority": NaN}', "malformed"),
        (json.dumps({"task": 5}), "$.task"),
        (json.dumps({"domain": "a.b", "prompt": "p"}), "missing required field `id`"),
        ("[]", "Expected `object`"),
        (b'{"task":' * 100_000, "recursion"),
        (b'{"id": "\xff"}', "utf-8"),
    ],
)
def test_a_wrong_line_is_named_and_nothing_is_submitted(tmp_path: Path, line: str | bytes, says: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(ConsoleError) as caught:
        read(tmp_path, json.dumps(TASK).encode() + b"\n" + raw)
    assert str(caught.value).startswith(f"{tmp_path / 'tasks.jsonl'}:2: not a task: ")
    assert says.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)
    assert caught.value.status == WRONG_USE


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match=r"missing\.jsonl: cannot be read: No such file"):
        list(submissions(tmp_path / "missing.jsonl", 0))
