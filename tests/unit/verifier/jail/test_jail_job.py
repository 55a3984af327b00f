"""A malformed job or limit is refused with one line before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from services.verifier.jail import FileEntry, Job, JobError, Limits
from services.verifier.jail.config import (
    REQUEST,
    TEXT_MAX,
    WITH_FILE,
    WITH_LISTENER,
    WITH_OWN_NETWORK,
    WITH_REPORT,
    request,
)
from services.verifier.network import Allow


@pytest.mark.parametrize(
    "bad",
    [
        {"wall_s": -1},
        {"wall_s": 0},
        {"wall_s": float("nan")},
        {"cpu_s": float("inf")},
        {"memory_bytes": 0},
        {"pids": -3},
        {"pids": 1},
        {"output_bytes": 0},
        {"disk_bytes": 1},
        {"inodes": 0},
        {"file_bytes": 1 << 60},
    ],
)
def test_limits_that_make_no_sense(bad: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=f"limit {next(iter(bad))} is"):
        Limits(**bad)


@pytest.mark.parametrize(
    "path", ["", "/a", "a/../b", "..", ".", "a//b", "a/", "a\0b", "n" * 256, "/".join("d" * 65), "\ud800"]
)
def test_paths_that_leave_the_folder(path: str) -> None:
    with pytest.raises(JobError):
        Job(argv=("x",), files={path: FileEntry(b"")})
    with pytest.raises(JobError):
        Job(argv=("x",), trusted={path: FileEntry(b"")})


def test_a_path_that_no_call_could_name_is_refused_here_and_not_in_the_slot() -> None:
    parts = "/".join(["d" * 199] * 20)
    longest = f"{parts}/{'e' * (4092 - len(parts) - 1)}"
    Job(argv=("x",), files={longest: FileEntry(b"")}, trusted={longest: FileEntry(b"")})
    for path in (longest + "e", longest[:-9] + "/" + "é" * 50):
        with pytest.raises(JobError, match="at most 4092 can be named") as caught:
            Job(argv=("x",), files={path: FileEntry(b"")})
        assert len(str(caught.value)) < 200


def test_a_file_cannot_also_be_a_folder() -> None:
    with pytest.raises(JobError, match="given as a file too"):
        Job(argv=("x",), files={"a/b": FileEntry(b""), "a": FileEntry(b"")})


@pytest.mark.parametrize(
    "bad",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a", "b\0c")},
        {"argv": ("a", "x" * 131_072)},
        {"argv": ("a", *["x" * 100_000] * 20)},
        {"argv": ("a",), "env": {"": "x"}},
        {"argv": ("a",), "env": {"A=B": "x"}},
        {"argv": ("a",), "env": {"A": "x\0"}},
    ],
)
def test_commands_that_cannot_be_started(bad: dict[str, Any]) -> None:
    with pytest.raises(JobError):
        Job(**bad)


def test_a_request_holds_every_string_in_order() -> None:
    job = Job(argv=("prog", "", "two words", "é\udcff"), env={"A": "1", "HOME": "/t"}, report=True)
    header, text = request(job, 7, 3)
    _, number, argc, envc, flags, procs, cpu_s, file_bytes, _, disk, inodes, size = REQUEST.unpack(header)
    strings = text.split(b"\0")
    assert strings.pop() == b""
    assert strings[:argc] == [b"prog", b"", b"two words", b"\xc3\xa9\xff"]
    assert len(strings) == argc + envc
    assert b"A=1" in strings
    assert [s for s in strings if s.startswith(b"HOME=")] == [b"HOME=/t"]
    assert (number, procs, flags, file_bytes, size) == (7, 3, WITH_REPORT, 16 << 20, len(text))
    assert cpu_s > job.limits.cpu_s
    assert disk > job.limits.disk_bytes
    assert inodes > job.limits.inodes


def test_long_strings_go_through_a_file() -> None:
    header, text = request(Job(argv=("a", "x" * TEXT_MAX)), 1, 0)
    assert REQUEST.unpack(header)[4] == WITH_FILE
    assert len(text) > TEXT_MAX


def test_a_job_with_a_network_is_told_of_its_proxy() -> None:
    header, text = request(Job(argv=("a",), network=Allow((("example.org", 443),))), 1, 0)
    assert REQUEST.unpack(header)[4] == WITH_LISTENER | WITH_OWN_NETWORK
    assert b"HTTPS_PROXY=http://127.0.0.1:3128\0" in text
    assert b"_PROXY" not in request(Job(argv=("a",)), 1, 0)[1]
