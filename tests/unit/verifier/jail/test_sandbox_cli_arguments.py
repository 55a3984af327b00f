"""The command line is checked before anything is started."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from services.verifier import sandbox_cli


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
        "--files", str(tmp_path / "in"), "--stdin", str(tmp_path / "input"), "--", "sh", "-c", "--x",
    )  # fmt: skip
    job = sandbox_cli.build_job(args, tmp_path)
    assert job.argv == ("sh", "-c", "--x")
    assert (job.stdin, dict(job.files)["run.sh"].mode) == (b"to read", 0o755)
    limits = job.limits
    assert (limits.wall_s, limits.cpu_s, limits.memory_bytes, limits.pids) == (3, 3, 64 << 20, 9)
    assert (limits.output_bytes, limits.disk_bytes) == (1024, 2 << 20)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "command is empty"),
        (("--network", "allow:example.com:80", "--", "true"), "only 'none' is supported"),
        (("--wall", "-1", "--", "true"), "limit wall_s"),
        (("--snapshot", "zz", "--", "true"), "snapshot id"),
        (("--snapshot", "0" * 64, "--", "true"), "cannot be read"),
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


def test_links_are_not_taken_along(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("/etc/passwd")
    with pytest.raises(sandbox_cli.UsageError, match="not a regular file"):
        sandbox_cli.read_folder(tmp_path)
