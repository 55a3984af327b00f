"""`temper sandbox run` prints one JSON document, and snapshots carry on from run to run."""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from services.verifier import sandbox_cli
from services.verifier.jail import Host

pytestmark = pytest.mark.integration
FIELDS = {
    "cause", "exit_code", "signal", "wall_s", "cpu_s", "peak_memory_bytes", "stdout", "stderr", "stdout_truncated",
    "stderr_truncated", "diff", "survivors", "snapshot", "network", "connections", "isolation", "detail", "peak_pids",
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
    assert (document["network"], document["connections"]) == ("none", [])
    assert document["peak_pids"] >= 1
    assert [set(c) for c in document["diff"]["created"]] == [{"path", "type", "mode", "size", "digest"}]


def test_snapshot_from_run_to_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "seed").write_text("s")
    first = run_json(capsys, "--files", str(tmp_path / "in"), "--", "sh", "-c", "cp seed copy; rm seed")
    second = run_json(capsys, "--snapshot", first["snapshot"], "--", "ls")
    assert second["stdout"] == "copy\n"
    assert second["snapshot"] == first["snapshot"]


def test_a_target_that_can_never_be_reached_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    sandbox_cli.add_arguments(parser)
    words = ["--network", "allow:10.0.0.1:80", "--", "/bin/true"]
    assert sandbox_cli.main(parser.parse_args(words)) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "10.0.0.1:80 can never be reached: its address is private" in said.err


def test_network_through_the_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    """The list is kept to, this host is refused though it is on the list, and the result says what was tried."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = (
            "import http.client, os, socket\n"
            "for host in ('127.0.0.1', 'localhost', 'other.example'):\n"
            "  proxy = http.client.HTTPConnection(os.environ['http_proxy'].removeprefix('http://'), timeout=20)\n"
            f"  proxy.request('GET', f'http://{{host}}:{port}/', headers={{'Host': f'{{host}}:{port}'}})\n"
            "  reply = proxy.getresponse()\n"
            "  print(reply.status, reply.read().decode().strip())\n"
            "try:\n"
            f"  socket.create_connection(('127.0.0.1', {port}), timeout=5)\n"
            "except OSError as error:\n"
            "  print(error.strerror)\n"
        )
        asked = f"allow:localhost:{port}"
        document = run_json(capsys, "--network", asked, "--", "python3", "-c", script)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert document["stdout"].splitlines() == [
        f"403 127.0.0.1:{port} is not on the list",
        "403 127.0.0.1 is loopback",
        f"403 other.example:{port} is not on the list",
        "Connection refused",
    ]
    assert document["network"] == asked
    assert document["connections"] == [
        f"GET 127.0.0.1:{port}: refused: 127.0.0.1:{port} is not on the list",
        f"GET localhost:{port}: refused: 127.0.0.1 is loopback",
        f"GET other.example:{port}: refused: other.example:{port} is not on the list",
    ]


def test_without_network_there_is_no_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "--", "sh", "-c", "env | grep -i proxy; exec 3<>/dev/tcp/127.0.0.1/3128")
    assert document["stdout"] == ""
    assert document["exit_code"] != 0


def test_special_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    sandbox_cli.add_arguments(parser)
    assert sandbox_cli.main(parser.parse_args(["--json", "--", "sh", "-c", "mkfifo p; echo x >f"])) == 0
    out, err = capsys.readouterr()
    assert err == "temper sandbox run: not kept in the snapshot: 'p' (fifo)\n"
    assert [(c["path"], c["type"]) for c in json.loads(out)["diff"]["created"]] == [
        ("f", "file"),
        ("p", "fifo"),
    ]


def test_open_files(capsys: pytest.CaptureFixture[str]) -> None:
    script = "k = []\ntry:\n  while True: k.append(open('/dev/null'))\nexcept OSError as e: print(e.strerror, len(k))"
    document = run_json(capsys, "--open-files", "20", "--", "python3", "-c", script)
    assert document["stdout"] == "Too many open files 17\n"


def test_any_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPER_BLOBS", "memory://sandbox-cli")
    first = run_json(capsys, "--", "sh", "-c", "echo x > f")
    assert run_json(capsys, "--snapshot", first["snapshot"], "--", "cat", "f")["stdout"] == "x\n"


@pytest.mark.parametrize(
    ("options", "command", "cause"),
    [
        (("--wall", "0.3"), "sleep 9", "wall"),
        (("--cpu", "0.2"), "while :; do :; done", "cpu"),
        (("--memory", "32M"), "head -c 99M /dev/zero | tail", "memory"),
        (("--pids", "8"), "while :; do sleep 9 & done", "pids"),
        (("--output", "1K"), "yes", "output"),
        (("--disk", "1M"), "exec dd if=/dev/zero of=x bs=1M count=3", "disk"),
        (("--inodes", "20"), "for n in $(seq 99); do : > $n || exit 1; done", "disk"),
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
