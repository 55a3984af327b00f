"""Writes `report.html` (one self-contained page) and `report.json`. Invariant: both come from one fold of the log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from schemas.run import RunConfig
from schemas.topics import all_topics
from services.console.charts import domain_bars, reward_curve, stacked
from services.console.connection import Connection
from services.console.errors import ConsoleError
from services.console.figures import Figures, add, examples, summary
from services.runtime.consumer import LogReader
from services.runtime.fence import EpochFence

READ_DEADLINE_S = 300.0
NEWER = ("grants", "snapshots")
"""Topics that the log of an older run does not have; a report tells nothing of them."""
SHOWN_STEPS_S = ("trainer wait", "trainer train", "trainer save")


async def read_log(link: Connection, pool: str) -> Figures:
    """Fold the whole log of a run.

    Raises:
        ConsoleError: the end was not reached before the deadline.
    """
    names = [
        topic.name
        for topic in all_topics((pool,))
        if not topic.name.endswith(".dlq") and topic.name not in NEWER
    ]
    reader = LogReader(link.kafka, link.prefix, names, start="earliest")
    figures, fence = Figures(), EpochFence()
    await reader.start()
    deadline = time.monotonic() + READ_DEADLINE_S
    try:
        while not await reader.caught_up():
            if time.monotonic() > deadline:
                raise ConsoleError(
                    f"the log was not read to its end within {READ_DEADLINE_S:.0f} s: try `temper report` again"
                )
            for record in fence.admitted(await reader.poll(0.5, 5000)):
                add(figures, record.topic, record.event)
        return figures
    finally:
        await reader.stop()


async def write_report(config: RunConfig, folder: Path, link: Connection, wall_s: float) -> dict[str, Any]:
    """Write both files into the run's folder and return the figures."""
    figures = await read_log(link, config.sampler.pool)
    timeline = msgspec.json.decode((folder / "timeline.json").read_bytes())
    replay_file = folder / "replay.json"
    replay = msgspec.json.decode(replay_file.read_bytes()) if replay_file.exists() else {}
    report = summary(figures, seed=config.seed, wall_s=wall_s, restarts=timeline["restarts"], replay=replay)
    report["phases"] = {name: round(seconds, 1) for name, seconds in timeline["phases"].items()}
    (folder / "report.html").write_text(render(config, figures, report), encoding="utf-8")
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return report


def render(config: RunConfig, figures: Figures, report: dict[str, Any]) -> str:
    """The page: everything inline, nothing fetched."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    before, after = figures.evaluations.get("before"), figures.evaluations.get("after")
    steps = sorted((step.step, step.metrics) for step in figures.steps if step.metrics)
    return environment.get_template("report.html.j2").render(
        config=config,
        config_text=msgspec.json.format(msgspec.json.encode(config), indent=2).decode(),
        report=report,
        before=before,
        after=after,
        curve=reward_curve(steps) if len(steps) > 1 else "",
        bars=domain_bars(before, after) if before and after else "",
        phases=stacked(report["phases"], "s") if report["phases"] else "",
        trainer=stacked({name: figures.seconds[name] for name in SHOWN_STEPS_S}, "s"),
        examples=examples(figures),
        final=steps[-1][1] if steps else {},
    )
