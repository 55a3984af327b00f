"""Rows of a document's tables. Invariant: neither the order of the wanted rows nor that of the given ones changes the score.

Rows are paired so that the most cells are right (best assignment, as KIEval groups, arXiv 2503.05488); the cells then count
in the same F1 as plain fields do: micro, over all cells of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from services.verifier import specs
from services.verifier.families import typed
from services.verifier.families.assign import best
from services.verifier.families.edit import FAIR, Work, price
from services.verifier.values import ValueFormatError

MAX_ROWS = 128
MAX_COLUMNS = 32
SURPLUS = 2
"""Times as many rows as the largest table may have are looked at, no more."""


@dataclass(frozen=True, slots=True)
class Count:
    """Cells: how many are right (a sum of degrees), given and wanted."""

    right: float
    given: int
    wanted: int
    note: str = ""


def check(table: Any, where: str, settings: dict[str, Any]) -> None:
    """`columns` {name: type and options}, `rows` [{name: wanted value}]; a row may lack columns. Raises SpecError."""
    specs.keys(specs.table(table, where), ("columns", "rows"), where)
    columns = specs.table(table.get("columns"), f"{where}.columns")
    if not 1 <= len(columns) <= MAX_COLUMNS:
        raise specs.SpecError(f"{where}.columns has {len(columns)} columns: give 1 to {MAX_COLUMNS}")
    for name, column in columns.items():
        # Checked with null as the wanted value, for a table without rows.
        typed.check(
            specs.table(column, f"{where}.columns.{name}") | {"want": None},
            f"{where}.columns.{name}",
            settings,
        )
    rows = specs.items(table.get("rows"), f"{where}.rows")
    if len(rows) > MAX_ROWS:
        raise specs.SpecError(f"{where}.rows has {len(rows)} rows, {MAX_ROWS} are allowed")
    for index, row in enumerate(rows):
        place = f"{where}.rows[{index}]"
        if not specs.table(row, place):
            raise specs.SpecError(f"{place} is empty: give at least 1 cell")
        specs.keys(row, tuple(columns), place)
        for name, want in row.items():
            typed.check(columns[name] | {"want": want}, f"{place}.{name}", settings)
    # Each row is compared with each, and in the worst case character by character.
    steps = sum(
        1 + price(len(want), len(want)) if isinstance(want, str) else 1
        for row in rows
        for want in row.values()
    )
    if len(rows) * steps > FAIR:
        raise specs.SpecError(
            f"{where}.rows takes too long to compare with as many rows: use fewer or shorter ones"
        )


def size(table: dict[str, Any]) -> int:
    """Cells wanted. A table without rows is one thing to be said, as an empty list; a missing one or null is another."""
    return sum(map(len, table["rows"])) or 1


def count(table: dict[str, Any], got: Any, settings: dict[str, Any], work: Work) -> Count:
    """Cells of `got`, the answer's value for this table. Raises ValueFormatError: too many rows, or `work` runs out."""
    columns, rows = table["columns"], table["rows"]
    wanted = [
        {name: typed.read(columns[name] | {"want": want}, settings) for name, want in row.items()}
        for row in rows
    ]
    total = size(table)
    if not isinstance(got, list):
        return Count(0.0, 1, total, "no list of rows")
    if len(got) > SURPLUS * MAX_ROWS:
        raise ValueFormatError(f"{len(got)} rows, {SURPLUS * MAX_ROWS} are allowed")
    if not got or not wanted:
        given = sum(_cells(row) for row in got)
        return Count(float(not got and not wanted), given or int(not wanted), total, "" if got else "no rows")
    work.spend(total * len(got))
    normal = [_normal(columns, row, settings) for row in got]
    table_of = [[_right(want, row, work) for row in normal] for want in wanted]
    right = sum(table_of[row][column] for row, column in best(table_of))
    note = "" if len(got) == len(wanted) else f"{len(got)} rows, {len(wanted)} wanted"
    return Count(right, sum(_cells(row) for row in got), total, note)


def _cells(row: Any) -> int:
    return max(1, len(row)) if isinstance(row, dict) else 1


def _normal(columns: dict[str, Any], row: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Normal forms of a row's known cells; None for null, an Ellipsis for what is no value of the column's type."""
    if not isinstance(row, dict):
        return {}
    made: dict[str, Any] = {}
    for name, value in row.items():
        if name in columns:
            form = (
                None if value is None else typed.read(columns[name] | {"want": None}, settings).normal(value)
            )
            made[name] = ... if form is None and value is not None else form
    return made


def _right(want: dict[str, typed.Field], row: dict[str, Any], work: Work) -> float:
    total = 0.0
    for name, field in want.items():
        made = row.get(name, ...)
        if made is ...:
            continue
        if field.want is None or made is None:
            total += field.want is None and made is None
        else:
            total += field.compare(made, work)
    return total
