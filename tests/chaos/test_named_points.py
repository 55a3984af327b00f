"""A whole run in which every service dies at each of its named points, by SIGKILL, and which ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.checkpoints import CheckpointPublished
from schemas.evaluations import EvaluationFinished
from schemas.run import RunConfig
from services.runtime.catalog import Catalog
from services.runtime.faults import POINTS
from services.runtime.settings import load_json
from services.runtime.stack import Stack
from services.scheduler.policies import policies_of
from tests.chaos.suite import log as logs
from tests.chaos.suite.audit import audit
from tests.chaos.suite.findings import unchecked
from tests.chaos.suite.plays.kills import SCHEDULER_POINTS
from tests.chaos.suite.scenarios import SCENARIOS

FAULTS = (
    "sampler:after-lease:9",
    "sampler:mid-generation:60",
    "consumer:before-commit:7",
    "verifier:before-emit:8",
    "verifier:after-emit:11",
    "trainer:before-rename:3",
    "trainer:after-rename:3",
    "trainer:before-event:3",
    "trainer:after-event:3",
    "evaluator:after-ask:1",
    "evaluator:before-event:1",
    "evaluator:after-event:1",
    "scheduler:after-journal:40",
    "scheduler:after-effects:60",
)
"""Counts are passes of one process; each fault comes once, so the next process gets further. Two of the scheduler's points only:
what ends five times in two minutes is not started again."""
ELSEWHERE = {
    **dict.fromkeys(SCHEDULER_POINTS, "tests/chaos/suite/plays/kills.py"),
    "scheduler:before-tidy": "tests/unit/scheduler/test_cellar.py",
}
"""Where processes are killed at the scheduler's points, each seen by the mark that it leaves."""
PROJECT = Path(__file__).resolve().parents[2]


def test_every_named_point_is_one_where_something_dies() -> None:
    sought = [fault.rpartition(":")[0] for fault in FAULTS]
    assert len(sought) == len(set(sought))
    assert {*sought, *ELSEWHERE} == set(POINTS)
    assert {point for point in ELSEWHERE if not point.startswith("scheduler:")} == set()
    told = (PROJECT / ELSEWHERE["scheduler:before-tidy"]).read_text(encoding="utf-8")
    assert '"TEMPER_FAULT": f"scheduler:before-tidy:' in told
    [scenario] = [each for each in SCENARIOS if each.name == "scheduler-killed"]
    assert scenario.short


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_service_dies_at_every_named_point(start_run: Callable[..., Any], tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    smaller = ("--training.steps", "10", "--evaluator.tasks", "2", "--evaluator.samples", "2")
    run = start_run(*smaller, TEMPER_FAULT=",".join(FAULTS), TEMPER_FAULT_DIR=str(marks))
    report = run.report(540)
    happened = {path.name for path in marks.iterdir()}
    assert happened == {fault.replace(":", "_") for fault in FAULTS}
    assert report["lost"] == 0
    assert report["groups_trained_twice"] == 0
    assert report["steps"] == 10
    assert report["replay"]["equal"] is True
    assert report["replay"]["violations"] == []
    assert sum(report["restarts"].values()) >= len(FAULTS)

    config = load_json(run.folder / "config.json", RunConfig)
    domains = config.domains
    catalog = Catalog.load(domains.paths, domains.include, domains.exclude)
    with Stack.start(run.folder / "stack", environ={}) as stack:
        log = asyncio.run(logs.read(stack.kafka, ""))
    found = audit(log, policies_of(catalog.cards, config), catalog)
    assert found.findings == []
    assert unchecked([found], projected=False) == []
    # An evaluator that died while it asked, before and after it told: each evaluation is told once, whole.
    evaluations = [record.event for record in log.of("evaluations")]
    told = [event for event in evaluations if isinstance(event, EvaluationFinished)]
    assert sorted(event.label for event in told) == ["after", "before"]
    assert all(event.complete for event in told)
    assert found.figures["epochs"] >= 1 + sum(fault.startswith("scheduler:") for fault in FAULTS)
    trained = [
        group
        for version in {
            record.event.policy.version: record.event
            for record in log.of("checkpoints")
            if isinstance(record.event, CheckpointPublished)
        }.values()
        for group in version.groups
    ]
    assert len(trained) == len(set(trained)) > 60
