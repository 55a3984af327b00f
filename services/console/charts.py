"""Charts of a report as inline SVG. Invariant: drawn from figures only, no file and no script beside the page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from schemas.cards import LAYERS
from schemas.evaluations import EvaluationFinished
from services.console.live import smooth

LAYERS_BY_NAME = {str(layer): position for position, layer in enumerate(LAYERS)}
COLOURS = {
    "all": "#111827",
    "foundation": "#2563eb",
    "tool": "#059669",
    "domain": "#d97706",
    "long_horizon": "#9333ea",
}
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "temper",
}


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def reward_curve(steps: Sequence[tuple[int, Mapping[str, float]]]) -> str:
    """Mean reward of each step's batch, overall and by layer, smoothed; the raw values behind it."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9, 3.6))
        for name in ("all", *LAYERS):
            metric = "reward_mean" if name == "all" else f"layer/{name}"
            points = [(step, metrics[metric]) for step, metrics in steps if metric in metrics]
            if not points:
                continue
            xs, ys = [x for x, _ in points], [y for _, y in points]
            if name == "all":
                axes.plot(xs, ys, color=COLOURS[name], alpha=0.2, linewidth=1)
            axes.plot(
                xs,
                smooth(ys),
                color=COLOURS[name],
                linewidth=2.2 if name == "all" else 1.4,
                label=name.replace("_", " "),
            )
        axes.set(xlabel="optimiser step", ylabel="mean reward", ylim=(0, 1))
        axes.legend(frameon=False, loc="lower right", ncols=5)
        axes.grid(axis="y", alpha=0.25)
        return _svg(figure)


def domain_bars(before: EvaluationFinished, after: EvaluationFinished) -> str:
    """Held-out score of every domain before and after, with 95 % intervals."""
    old = {row.domain: row for row in before.domains}
    new = {row.domain: row for row in after.domains}
    layer = {row.domain: row.layer for row in (*before.domains, *after.domains)}
    names = sorted(layer, key=lambda name: (LAYERS_BY_NAME[layer[name]], name), reverse=True)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9, 0.28 * len(names) + 1))
        for y, name in enumerate(names):
            for rows, colour, shift in ((old, "#9ca3af", 0.14), (new, "#2563eb", -0.14)):
                if name not in rows:
                    continue
                row = rows[name]
                axes.plot([row.low, row.high], [y + shift] * 2, color=colour, linewidth=2, alpha=0.5)
                axes.plot([row.mean], [y + shift], "o", color=colour, markersize=5)
        axes.set_yticks(range(len(names)), names)
        axes.set(
            xlim=(-0.02, 1.02), xlabel="held-out score at temperature 1 (grey before, blue after; bars: 95 %)"
        )
        axes.grid(axis="x", alpha=0.25)
        return _svg(figure)


def stacked(parts: Mapping[str, float], unit: str) -> str:
    """One horizontal bar of the parts of a whole."""
    total = sum(parts.values()) or 1.0
    palette = ["#2563eb", "#059669", "#d97706", "#9333ea", "#dc2626", "#0891b2", "#6b7280"]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9, 1.1))
        left = 0.0
        for position, (name, value) in enumerate(parts.items()):
            axes.barh(
                [0],
                [value],
                left=left,
                color=palette[position % len(palette)],
                label=f"{name} {value:.0f} {unit}",
            )
            left += value
        axes.set(xlim=(0, total), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.5), ncols=4, fontsize=9)
        return _svg(figure)
