"""The long form's report. Invariant: one self-contained page that shows every run, the bad ones first."""

from __future__ import annotations

import html
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.chaos.suite.run import Outcome

SHOWN = (
    *("tasks", "terminal", "entries", "epochs", "assignments", "groups", "effects", "effects_again"),
    *("losses", "drains", "ignored", "late_entries", "fenced_states", "restarts"),
)
"""Figures with a column of their own; what a scenario adds stands behind them."""
STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2rem;max-width:90rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.15rem .5rem;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child,td.t{text-align:left}"
    ".bad{background:#fde8e8}.good{color:#176c2b}code{white-space:pre-wrap}"
)


def page(outcomes: Sequence[Outcome], about: dict[str, str], wall_s: float) -> str:
    """The page as HTML."""
    bad = [outcome for outcome in outcomes if not outcome.good]
    totals = {name: sum(o.figures.get(name, 0.0) for o in outcomes) for name in SHOWN}
    findings = sum(len(outcome.findings) for outcome in outcomes)
    head = (
        f"<p class='{'good' if not bad else 'bad'}'>{len(outcomes) - len(bad)} of {len(outcomes)} runs held every invariant; "
        f"{findings} findings; {totals['tasks']:.0f} tasks, {totals['assignments']:.0f} attempts, "
        f"{totals['effects']:.0f} effects in {totals['entries']:.0f} journal entries; {wall_s:.0f} s on "
        f"{os.cpu_count()} cores, Python {platform.python_version()}.</p>"
    )
    parts = [head]
    if bad:
        parts.append("<h2>What did not hold</h2>")
        parts += [
            f"<p class='bad'><b>{html.escape(o.scenario)}, seed {o.seed}</b></p><code>"
            + html.escape("\n".join([*o.findings, o.error]).strip())
            + "</code>"
            for o in bad
        ]
    for name, text in about.items():
        rows = [outcome for outcome in outcomes if outcome.scenario == name]
        if rows:
            parts.append(f"<h2>{html.escape(name)}</h2><p>{html.escape(text)}</p>{_table(rows)}")
    body = "\n".join(parts)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Chaos report</title>"
        f"<style>{STYLE}</style></head><body><h1>Chaos report</h1>{body}</body></html>\n"
    )


def _table(rows: Iterable[Outcome]) -> str:
    rows = list(rows)
    columns = [name for name in SHOWN if any(name in row.figures for row in rows)]
    more = sorted({name for row in rows for name in row.figures} - set(SHOWN))
    names = ["seed", "result", "s", *columns, *more]
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in names)
    lines = [f"<table><tr>{head}</tr>"]
    for row in rows:
        cells = [str(row.seed), "held" if row.good else "failed", f"{row.seconds:.1f}"]
        cells += [_number(row.figures.get(name)) for name in (*columns, *more)]
        shown = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr class='{'' if row.good else 'bad'}'>{shown}</tr>")
    return "\n".join([*lines, "</table>"])


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def write(path: Path, outcomes: Sequence[Outcome], about: dict[str, str], wall_s: float) -> None:
    """Write the page, and the same figures as JSON beside it."""
    path.write_text(page(outcomes, about, wall_s), encoding="utf-8")
    path.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(list(outcomes)), indent=1))
