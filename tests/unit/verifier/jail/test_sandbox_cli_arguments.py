"""The command line is checked before anything is started."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from services.runtime.blobs import Blobs
from services.verifier import sandbox_cli
from services.verifier.__main__ import main as verifier_main
from services.verifier.jail import Snapshot
from services.verifier.jail.snapshot import save


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    sandbox_cli.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("64K", 65536), ("1.5M", 3 << 19), ("2GiB", 2 << 30), ("1kb", 1024)]
)
def test_sizes(text: str, value: int) -> None:
    assert sandbox_cli.size(text) == value


@pytest.mark.parametrize("text", ["", "x", "-1", "1T", "1 2"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="64K"):
        sandbox_cli.size(text)


def test_job_of_the_options(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "run.sh").write_bytes(b"x")
    (tmp_path / "in" / "run.sh").chmod(0o755)
    (tmp_path / "input").write_bytes(b"to read")
    args = parse(
        "--wall", "3", "--memory", "64M", "--pids", "9", "--output", "1K", "--disk", "2M",
        "--inodes", "77", "--open-files", "99", "--network", "allow:Example.com:443",
        "--files", str(tmp_path / "in"), "--stdin", str(tmp_path / "input"), "--", "sh", "-c", "--x",
    )  # fmt: skip
    job = sandbox_cli.build_job(args, Blobs(str(tmp_path)))
    assert job.argv == ("sh", "-c", "--x")
    assert (job.stdin, dict(job.files)["run.sh"].mode) == (b"to read", 0o755)
    limits = job.limits
    assert (limits.wall_s, limits.cpu_s, limits.memory_bytes, limits.pids) == (3, 3, 64 << 20, 9)
    assert (limits.output_bytes, limits.disk_bytes) == (1024, 2 << 20)
    assert (limits.inodes, limits.open_files) == (77, 99)
    assert str(job.network) == "allow:example.com:443"


def test_defaults(tmp_path: Path) -> None:
    job = sandbox_cli.build_job(parse("--wall", "7", "--", "true"), Blobs(str(tmp_path)))
    assert job.network is None
    assert job.base is None
    assert (job.limits.wall_s, job.limits.cpu_s, job.limits.memory_bytes) == (7, 7, 128 << 20)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "command is empty"),
        (("--network", "allow", "--", "true"), "write 'none' or allow:HOST:PORT"),
        (("--network", "allow:", "--", "true"), "has no list of targets"),
        (("--network", "", "--", "true"), "allow:HOST:PORT"),
        (("--network", "host", "--", "true"), "allow:HOST:PORT"),
        (("--network", "allow:*:443", "--", "true"), "is no host name"),
        (("--network", "allow:example.com", "--", "true"), "has no port"),
        (("--network", "allow:127.1:80", "--", "true"), "unusual notation"),
        (("--wall", "-1", "--", "true"), "limit wall_s"),
        (("--wall", "nan", "--", "true"), "limit wall_s"),
        (("--wall", "inf", "--", "true"), "limit wall_s"),
        (("--cpu", "-0.5", "--", "true"), "limit cpu_s"),
        (("--pids", "-3", "--", "true"), "limit pids"),
        (("--inodes", "-3", "--", "true"), "limit inodes"),
        (("--open-files", "0", "--", "true"), "limit open_files"),
        (("--memory", "0", "--", "true"), "limit memory_bytes"),
        (("--output", "0", "--", "true"), "limit output_bytes"),
        (("--disk", "1", "--", "true"), "limit disk_bytes"),
        (("--snapshot", "zz", "--", "true"), "snapshot id"),
        (("--snapshot", "", "--", "true"), "snapshot id"),
        (("--snapshot", "0" * 64, "--", "true"), "is missing: do all verifiers name the same TEMPER_BLOBS"),
        (("--files", "nowhere", "--", "true"), "not a folder"),
        (("--stdin", "nowhere", "--", "true"), "No such file"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TEMPER_BLOBS", raising=False)
    assert sandbox_cli.main(parse(*argv)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("run", "--wall", "soon", "--", "true"), "argument --wall: invalid float value: 'soon'"),
        (("run", "--memory", "-1", "--", "true"), "'-1' is not a size: write for example 64K, 128M or 1G"),
        (("run", "--memory", "-1M", "--", "true"), "argument --memory: expected one argument"),
        (("run", "--pids", "1.5", "--", "true"), "argument --pids: invalid int value: '1.5'"),
        (("run", "--network"), "argument --network: expected one argument"),
        (("walk",), "invalid choice: 'walk'"),
        ((), "the following arguments are required: action"),
    ],
)
def test_options_that_are_none_are_one_line_too(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        verifier_main(["sandbox", *argv])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_damaged_snapshot_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPER_BLOBS", str(tmp_path))
    name = save(Snapshot(()), tmp_path)
    (tmp_path / name[:2] / name).write_bytes(b"other")
    assert sandbox_cli.main(parse("--snapshot", name, "--", "true")) == 2
    assert "is damaged" in capsys.readouterr().err


def test_a_store_out_of_reach_is_status_3(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPER_BLOBS", "nowhere://x")
    assert sandbox_cli.main(parse("--", "true")) == 3
    assert "set TEMPER_BLOBS" in capsys.readouterr().err


def test_stdin_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(sandbox_cli.UsageError, match="more than 67108864 bytes"):
        sandbox_cli.read_stdin(Path("/dev/zero"))


def test_a_folder_that_cannot_be_read_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can read any: so the folder vanishes while it is walked."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    walk = os.fwalk

    def vanish(*given: Any, **named: Any) -> Any:
        for step in walk(*given, **named):
            if step[0] == str(tmp_path):
                (tmp_path / "b").rmdir()
            yield step

    monkeypatch.setattr(os, "fwalk", vanish)
    with pytest.raises(sandbox_cli.UsageError, match="cannot be read"):
        sandbox_cli.read_folder(tmp_path)


def test_links_are_not_taken_along(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("/etc/passwd")
    with pytest.raises(sandbox_cli.UsageError, match="not a regular file"):
        sandbox_cli.read_folder(tmp_path)
