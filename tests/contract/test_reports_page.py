"""The page of reports names tests that exist: a renamed or removed one is noticed here."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "verifier-reports.md"
NAMED = re.compile(r"`([a-z_/]+\.py)?(?:::(test_\w+))?(?:\[([\w-]+)\])?`")


def named() -> list[tuple[Path, str, str]]:
    """(file, test, parameter or "") of every test on the page; a short form belongs to what stands before it in its row."""
    found: list[tuple[Path, str, str]] = []
    for row in PAGE.read_text(encoding="utf-8").splitlines():
        path, test = "", ""
        for file, name, parameter in NAMED.findall(row):
            path, test = file or path, name or test
            if path and (name or parameter):
                found.append((TESTS / path, test, parameter))
    return found


def test_every_test_on_the_page_exists() -> None:
    assert len(named()) > 100
    for path, test, parameter in named():
        text = path.read_text(encoding="utf-8")
        assert re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE), f"{path.name}::{test}"
        assert not parameter or re.search(rf'"{re.escape(parameter)}"', text), (
            f"{path.name}::{test}[{parameter}]"
        )


def test_every_row_has_an_answer() -> None:
    rows = [
        row for row in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (\S+/\S+#|\d)", row)
    ]
    assert len(rows) > 60
    for row in rows:
        said = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(said) == 3, row
        assert all(said), row
