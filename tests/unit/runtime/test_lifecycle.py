from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SERVICE = """
import asyncio, sys
from services.runtime import lifecycle
from services.runtime.errors import BadInput, Unavailable

async def run(process, life):
    what = sys.argv[1]
    if what == "bad": raise BadInput("model folder x: no weights")
    if what == "lost": raise Unavailable("broker h:1: not there")
    if what == "bug": raise KeyError("colour")
    if what == "group":
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            group.create_task(fail())
    print("up", flush=True)
    await life.stop.wait()
    if what == "stuck": import time; time.sleep(60)
    if what == "slow": await asyncio.sleep(60)
    print("drained", life.reason, flush=True)

async def fail(): raise Unavailable("blob store: gone")

raise SystemExit(lifecycle.main("sampler", run))
"""
ROOT = Path(__file__).resolve().parents[3]


def start(what: str, **env: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "TEMPER_KAFKA": "h:1", "TEMPER_LOG": "text", **env}
    return subprocess.Popen(
        [sys.executable, "-c", SERVICE, what],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains(number: signal.Signals) -> None:
    process = start("work")
    up(process)
    process.send_signal(number)
    code, out, err = end(process)
    assert (code, out) == (0, f"drained {number.name}\n")
    assert "health at http://127.0.0.1:" in err


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [
        ("bad", 2, "sampler: model folder x: no weights"),
        ("lost", 3, "sampler: broker h:1: not there"),
        ("bug", 3, "sampler: KeyError: 'colour'"),
        ("group", 3, "sampler: blob store: gone"),
    ],
)
def test_failure_is_one_line_and_a_status(what: str, code: int, line: str) -> None:
    returncode, _, err = end(start(what))
    assert returncode == code
    assert line in err.splitlines()[-1]
    assert "Traceback" not in err


def test_missing_broker_setting_is_wrong_use() -> None:
    code, _, err = end(start("work", TEMPER_KAFKA=""))
    assert code == 2
    assert err.startswith("sampler: TEMPER_KAFKA is not set")


@pytest.mark.parametrize("what", ["slow", "stuck"])
def test_drain_deadline_holds_even_when_the_loop_is_blocked(what: str) -> None:
    process = start(what, TEMPER_DRAIN_S="0.5")
    up(process)
    begun = time.monotonic()
    process.terminate()
    code, _, err = end(process)
    assert code == 3
    assert time.monotonic() - begun < 10
    assert err.splitlines()[-1] == "sampler: not drained within 0.5 s, ending"


def test_second_signal_ends_at_once() -> None:
    process = start("slow", TEMPER_DRAIN_S="60")
    up(process)
    process.terminate()
    assert process.stderr is not None
    while "draining" not in process.stderr.readline():
        pass
    process.terminate()
    code, _, err = end(process)
    assert code == 3
    assert "SIGTERM again" in err
