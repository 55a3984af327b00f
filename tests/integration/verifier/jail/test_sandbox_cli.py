"""`temper sandbox run` prints one JSON document, and snapshots carry on from run to run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from services.verifier import sandbox_cli
from services.verifier.jail import Host

pytestmark = pytest.mark.integration
FIELDS = {
    "cause", "exit_code", "signal", "wall_s", "cpu_s", "peak_memory_bytes", "stdout", "stderr", "stdout_truncated",
    "stderr_truncated", "diff", "survivors", "snapshot", "network", "isolation", "detail",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_blobs(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_BLOBS", str(tmp_path / "blobs"))


def run(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> str:
    parser = argparse.ArgumentParser()
    sandbox_cli.add_arguments(parser)
    assert sandbox_cli.main(parser.parse_args(argv)) == status
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(capsys, "--json", *argv))
    return document


def test_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "--", "sh", "-c", "printf 'a\\377'; echo x > f; exit 9")
    assert set(document) == FIELDS
    assert (document["cause"], document["exit_code"], document["stdout"]) == (
        "exit",
        9,
        "a\N{REPLACEMENT CHARACTER}",
    )
    assert document["survivors"] == 0
    assert [set(c) for c in document["diff"]["created"]] == [{"path", "type", "mode", "size", "digest"}]


def test_snapshot_from_run_to_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "seed").write_text("s")
    first = run_json(capsys, "--files", str(tmp_path / "in"), "--", "sh", "-c", "cp seed copy; rm seed")
    second = run_json(capsys, "--snapshot", first["snapshot"], "--", "ls")
    assert second["stdout"] == "copy\n"
    assert second["snapshot"] == first["snapshot"]


@pytest.mark.parametrize(
    ("options", "command", "cause"),
    [
        (("--wall", "0.3"), "sleep 9", "wall"),
        (("--cpu", "0.2"), "while :; do :; done", "cpu"),
        (("--memory", "32M"), "head -c 99M /dev/zero | tail", "memory"),
        (("--pids", "8"), "while :; do sleep 9 & done", "pids"),
        (("--output", "1K"), "yes", "output"),
        (("--disk", "1M"), "exec dd if=/dev/zero of=x bs=1M count=3", "disk"),
        ((), "kill -9 $$", "signal"),
        ((), "true", "exit"),
    ],
)
def test_every_cause(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], command: str, cause: str
) -> None:
    assert run_json(capsys, *options, "--", "sh", "-c", command)["cause"] == cause


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "--", "sh", "-c", "echo hello; echo x > f")
    assert "hello" in shown
    assert "exit 0" in shown
    assert "+ 'f' (file, 2 bytes)" in shown


def test_no_jail_is_status_3(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.verifier.jail.machine.NETLINK", "libnothing.so.0")
    assert run(capsys, "--json", "--", "true", status=3) == ""
