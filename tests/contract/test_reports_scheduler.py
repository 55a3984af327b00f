"""The page of scheduler reports names tests and scenarios that exist: a renamed or removed one is noticed here."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "scheduler-reports.md"
NAMED = re.compile(r"`([a-z_/]+\.py)?::(\w+)`")


def named() -> list[tuple[Path, str]]:
    """(file, test) of every test on the page; a short form belongs to the file named before it in its row."""
    found: list[tuple[Path, str]] = []
    for row in PAGE.read_text(encoding="utf-8").splitlines():
        path = ""
        for file, name in NAMED.findall(row):
            path = file or path
            assert path, f"{name} stands before any file: {row}"
            found.append((TESTS / path, name))
    return found


def rows() -> list[list[str]]:
    """The cells of every row but the heads."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "report" and not row[0].startswith("---")]


def test_every_test_on_the_page_exists() -> None:
    assert len(named()) > 60
    for path, name in named():
        text = path.read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"{path.name}::{name}"


def test_every_report_has_an_answer_that_can_fail_or_a_reason_why_it_cannot_happen() -> None:
    assert len(rows()) > 45
    for row in rows():
        assert len(row) == 3, row
        assert all(row), row
        assert NAMED.search(row[2]) or "cannot happen" in row[2], row
