"""Reads submissions from a file, one a line. Invariant: nothing is read past a line that is wrong, and no word of it is ignored.

A line is a task, or `{"task": {...}, "priority": 5}` with what stands beside a task in the published schema of TaskSubmitted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from schemas.tasks import Task, TaskSubmitted
from services.console.errors import WRONG_USE, ConsoleError

OUTER = frozenset(TaskSubmitted.__struct_fields__)
INNER = frozenset(Task.__struct_fields__)


def submissions(path: Path, priority: int) -> Iterator[TaskSubmitted]:
    """The submissions of a file, `-` for standard input; `priority` for lines that say none.

    Raises:
        ConsoleError: the file cannot be read, or a line is no submission; names the line.
    """
    try:
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise ConsoleError(f"{path}: cannot be read: {error.strerror or error}", WRONG_USE) from error
    # At line feeds only, for JSON text may hold other characters that Python takes for the end of a line.
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield submission(line, priority)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConsoleError(f"{path}:{number}: not a task: {error}", WRONG_USE) from error


def submission(line: bytes, priority: int) -> TaskSubmitted:
    """The submission that a line of JSON is.

    Raises:
        MsgspecError: it is none, or has a field that would be ignored.
        UnicodeDecodeError: it is no UTF-8.
    """
    found = msgspec.json.decode(line, type=dict[str, object])
    if "task" not in found:
        found = {"task": found}
    outer = {"priority": priority} | found
    task = outer["task"]
    inner = task if isinstance(task, dict) else {}
    for name in sorted(map(str, {*(outer.keys() - OUTER), *(inner.keys() - INNER)})):
        place = (
            f'it stands beside "task": {{"task": {{...}}, "{name}": ...}}'
            if name in OUTER
            else "no field of a task"
        )
        raise msgspec.ValidationError(f"`{name}`: {place}")
    return msgspec.convert(outer, TaskSubmitted)
