from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import logging, sys
from services.runtime import telemetry
telemetry.setup("sampler", worker="w1")
assert telemetry.current_traceparent() == ""
with telemetry.span("submit task", kind="producer") as root:
    logging.getLogger("x").info("hello %s", "world")
    with telemetry.span("inner", attributes={"temper.task.id": "t"}) as inner:
        inner.set(temper_attempt=2)
        assert telemetry.current_traceparent() == inner.traceparent
remote = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
with telemetry.span("process", parent=remote, kind="consumer", start_s=1.0) as other: pass
telemetry.shutdown(1.0)
print(root.traceparent, inner.traceparent, other.traceparent, sep="\\n")
"""


def run(**env: str) -> tuple[list[str], str]:
    environment = {"PATH": os.environ["PATH"], **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1], done.stderr


def test_ids_flow_without_any_exporter() -> None:
    (root, inner, other), err = run(TEMPER_LOG="json")
    assert root[3:35] == inner[3:35]
    assert root != inner
    assert other[3:35] == "0af7651916cd43dd8448eb211c80319c"
    lines = [msgspec.json.decode(line) for line in err.splitlines()]
    assert len(lines) == 1, "nothing is exported, nothing complains"
    assert lines[0]["event"] == "hello world"
    assert lines[0]["service"] == "sampler"
    assert lines[0]["trace_id"] == root[3:35]


def test_console_exporter_prints_spans() -> None:
    _, err = run(OTEL_TRACES_EXPORTER="console", TEMPER_LOG="text")
    assert '"name": "submit task"' in err
    assert '"temper.attempt": 2' in err


def test_disabled_is_silent_and_keeps_the_outside_context() -> None:
    (root, inner, other), err = run(OTEL_SDK_DISABLED="true", TEMPER_LOG="text")
    assert (root, inner) == ("", "")
    assert other == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert "hello world" in err
