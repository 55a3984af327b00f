"""The live terminal view. Invariant: draws only what the view's state holds; without a terminal it prints plain lines."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from schemas.cards import LAYERS
from schemas.run import RunConfig
from services.console.view import View

BARS = " ▁▂▃▄▅▆▇█"
PLAIN_EVERY_S = 15.0
SILENT_S = 10.0


def spark(values: list[float], width: int = 40) -> str:
    """The last `width` values, each in [0, 1], as block characters."""
    return "".join(BARS[round(min(1.0, max(0.0, value)) * (len(BARS) - 1))] for value in values[-width:])


def smooth(values: list[float], keep: float = 0.8) -> list[float]:
    """Exponential moving average."""
    out: list[float] = []
    for value in values:
        out.append(value if not out else keep * out[-1] + (1 - keep) * value)
    return out


def render(
    view: View, config: RunConfig, phase: str, restarts: dict[str, int], *, now: float, started: float
) -> Group:
    """The whole screen."""
    head = Table.grid(padding=(0, 3))
    head.add_row(
        Text(config.name, style="bold"),
        Text(phase),
        f"step {max(0, view.version)}/{config.training.steps}",
        f"{view.rate(now):.0f} samples/s",
        f"{int(now - started) // 60}:{int(now - started) % 60:02d}",
    )
    rewards = Table(title="reward by layer", title_justify="left", box=None, padding=(0, 1))
    rewards.add_column("layer")
    rewards.add_column("now", justify="right")
    rewards.add_column("curve")
    mean = smooth([reward for _, reward in view.rewards])
    rewards.add_row("all", f"{mean[-1]:.3f}" if mean else "-", spark(mean))
    for layer in LAYERS:
        series = smooth(view.layers.get(layer, []))
        rewards.add_row(layer, f"{series[-1]:.3f}" if series else "-", spark(series))
    queue = Table(title="queue", title_justify="left", box=None, padding=(0, 1))
    live = view.live()
    for state in ("ready", "leased", "running", "verifying", "backoff", "waiting"):
        queue.add_row(state, str(live.get(state, 0)))
    queue.add_row("ended", str(view.ended.total()))
    queue.add_row("leases", str(view.leases(now)))
    facts = Table(title="state", title_justify="left", box=None, padding=(0, 1))
    facts.add_row(
        "staleness",
        f"{view.metrics.get('staleness_mean', 0.0):.2f} (max {view.metrics.get('staleness_max', 0.0):.0f})",
    )
    facts.add_row(
        "verdicts", ", ".join(f"{name} {count}" for name, count in sorted(view.outcomes.items())) or "-"
    )
    facts.add_row("from cache", str(view.cached))
    facts.add_row(
        "faults",
        f"infra {view.outcomes['infra']}, lost attempts {view.losses}, restarts {sum(restarts.values())}",
    )
    for label, finished in view.evaluations.items():
        facts.add_row(
            f"held-out {label}",
            f"{finished.mean:.3f} [{finished.low:.3f}, {finished.high:.3f}], greedy {finished.greedy:.3f}",
        )
    workers = Table(title="workers", title_justify="left", box=None, padding=(0, 1))
    for name, beat in sorted(view.workers.items()):
        silent = now - beat.at
        version = beat.heartbeat.policy_version
        shown = f"v{version} " if version >= 0 else ""
        workers.add_row(name, f"{shown}{'silent ' + str(int(silent)) + ' s' if silent > SILENT_S else 'up'}")
    return Group(Panel(head), Columns([rewards, queue]), Columns([facts, workers]))


class Screen:
    """Shows a view: a live screen on a terminal, a line now and then elsewhere."""

    def __init__(self, config: RunConfig, *, plain: bool) -> None:
        self._config = config
        self._console = Console(stderr=True)
        self._plain = plain or not self._console.is_terminal
        self._live = (
            None if self._plain else Live(console=self._console, refresh_per_second=4, transient=False)
        )
        self._started = time.time()
        self._last = 0.0
        self._phase = ""

    def __enter__(self) -> Self:
        """Begin drawing."""
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        """Print a line that stays, above the live screen."""
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def show(self, view: View, phase: str, restarts: dict[str, int]) -> None:
        """Draw the present state."""
        now = time.time()
        if self._live is not None:
            self._live.update(render(view, self._config, phase, restarts, now=now, started=self._started))
            return
        if phase == self._phase and now - self._last < PLAIN_EVERY_S:
            return
        self._phase, self._last = phase, now
        mean = smooth([reward for _, reward in view.rewards])
        live = view.live()
        self._console.print(
            f"{now - self._started:6.0f} s  {phase:<18} step {max(0, view.version)}/{self._config.training.steps}"
            f"  reward {f'{mean[-1]:.3f}' if mean else '-'}  {view.rate(now):.0f} samples/s"
            f"  ready {live.get('ready', 0)} running {live.get('leased', 0) + live.get('running', 0)}"
            f" verifying {live.get('verifying', 0)} ended {view.ended.total()}"
            f"  infra {view.outcomes['infra']} restarts {sum(restarts.values())}",
            highlight=False,
            soft_wrap=True,
        )
