"""A run whose services are killed one after the other ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.collector import Collector, collecting

VICTIMS = ("sampler-0", "verifier-0", "trainer", "scheduler")


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kill_9_of_each_service_loses_nothing(start_run: Callable[..., Any]) -> None:
    with collecting() as collector:
        _run(start_run, collector)
    _traced(collector)


def _run(start_run: Callable[..., Any], collector: Collector) -> None:
    run = start_run(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
    run.until("first version", lambda: run.version() >= 1, 120)
    for turn, victim in enumerate(VICTIMS):
        version = run.version()
        pid = run.pids()[victim]
        os.kill(pid, signal.SIGKILL)
        run.until(f"{victim} back", lambda pid=pid, victim=victim: run.pids().get(victim, pid) != pid, 60)
        run.until(f"progress after {victim}", lambda version=version: run.version() > version + 1, 120)
        assert run.version() <= 16 - len(VICTIMS) + turn + 1, (
            "the run was over before the last kill: lengthen it"
        )
    report = run.report(240)
    assert report["lost"] == 0
    assert report["groups_trained_twice"] == 0
    assert report["steps"] == 16
    assert {name: count for name, count in report["restarts"].items() if count} == dict.fromkeys(VICTIMS, 1)
    assert report["replay"]["equal"] is True
    assert report["replay"]["violations"] == []
    assert report["heldout"]["after"] > report["heldout"]["before"] + 0.05


def _traced(collector: Collector) -> None:
    """A task has one trace, from its submission through sampling and verification to the step that trains on it."""
    by_id = {span.span: span for span in collector.spans}
    whole = 0
    for span in collector.spans:
        if span.name != "train group":
            continue
        path = [span]
        while path[-1].parent in by_id:
            path.append(by_id[path[-1].parent])
        assert {step.trace for step in path} == {span.trace}
        names = [(step.service, step.name) for step in path]
        if path[-1].parent:
            continue  # what a killed service had not sent yet is missing
        whole += 1
        assert names[0] == ("temper-trainer", "train group")
        assert names[-2:] == [("temper-sampler", "sample group"), ("temper-console", "submit task")]
        assert path[-1].attributes["temper.domain"] == span.attributes["temper.domain"]
    assert whole > 20
    verified = {span.trace for span in collector.spans if span.name == "verify"}
    submitted = {span.trace: span.service for span in collector.spans if span.name == "submit task"}
    assert {submitted.get(trace) for trace in verified} >= {"temper-console", "temper-evaluator"}
