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


CATALOGUE = (
    *(1, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14, 16, 17, 18),  # resources
    *(
        20,
        21,
        22,
        24,
        25,
        27,
        28,
        29,
        30,
        31,
        32,
        33,
        34,
        36,
        37,
        38,
        41,
        42,
        43,
        47,
        49,
        50,
    ),  # leaving the box
    *(51, 52, 54, 55, 57, 58, 59, 61, 62, 65, 67, 69, 71, 72, 76),  # rewards
    *range(101, 118),  # found here
)
"""Kinds of hostile programs, by the numbers that the tests' names begin with."""


def test_every_kind_of_the_catalogue_has_a_row_with_tests_of_it() -> None:
    rows: dict[int, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if (found := re.match(r"\| (\d+) \|", line)) is not None:
            assert int(found[1]) not in rows, line
            rows[int(found[1])] = line
    assert tuple(sorted(rows)) == CATALOGUE
    for number, row in rows.items():
        assert re.search(r"`(hostile|unit|integration|property)/\S+\.py::test_", row), (number, row)


def test_every_numbered_hostile_test_is_of_a_kind_in_the_catalogue() -> None:
    """A kind that is tested and not on the page is noticed too; letters after a number tell ways of one kind apart."""
    named: set[int] = set()
    for path in (TESTS / "hostile").glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        named |= {int(n) for n in re.findall(r'"(\d{1,2})[a-z]?-[a-z]', text)}
        named |= {int(n) for n in re.findall(r"def test_(\d{1,2})[a-z]?_", text)}
    assert named - set(CATALOGUE) <= {
        2,
        6,
        35,
        45,
    }  # kinds within those of the page: chains, shm, read-only files, keys
    assert len(named & set(CATALOGUE)) > 40


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
