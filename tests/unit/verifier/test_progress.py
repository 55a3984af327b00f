"""Records only go forward, whoever writes them and in whatever order; damage is never taken for progress."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.verdicts import StageResult
from services.runtime.blobs import BlobError
from services.verifier.keep import Keep
from services.verifier.progress import (
    Committed,
    DamagedRecordError,
    Progress,
    decode,
    encode,
    record_key,
)

NUMBERS = itertools.count()


def committed(name: str = "s", snapshot: str | None = None, **more: Any) -> Committed:
    passed = snapshot is not None
    result = StageResult(name=name, weight=1.0, score=float(passed), passed=passed, snapshot=snapshot)
    return Committed(result=result, taken=more.pop("taken", 1), **more)


one = st.builds(
    committed,
    name=st.text(max_size=3),
    snapshot=st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    worker=st.text(max_size=3),
    runs=st.integers(0, 9),
    settled=st.booleans(),
)
progress = st.builds(
    Progress,
    stages=st.lists(one, max_size=4).map(tuple),
    restarts=st.integers(0, 2),
    idle=st.integers(0, 3),
    again=st.integers(0, 4),
    note=st.text(max_size=5),
)


@given(progress)
def test_a_record_survives_the_store(what: Progress) -> None:
    assert decode("k", encode("k", what)) == what


@given(progress, st.data())
@settings(deadline=None)  # a busy machine is no fault of the record's
def test_no_damaged_record_is_read(what: Progress, data: st.DataObject) -> None:
    raw = encode("k", what)
    at = data.draw(st.integers(0, len(raw) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    for damaged in (raw[:at], raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]):
        with pytest.raises(DamagedRecordError) as caught:
            decode("k", damaged)
        assert "\n" not in str(caught.value)


def test_a_record_of_another_answer_is_none() -> None:
    with pytest.raises(DamagedRecordError, match="checksum"):
        decode("k", encode("other", Progress()))


def test_keys_tell_owner_and_answer_apart() -> None:
    assert len({record_key(owner, answer) for owner in "ab" for answer in "ab"}) == 4


@given(st.lists(progress, max_size=8))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_furthest_stands_whoever_writes_last(tmp_path: Path, writes: list[Progress]) -> None:
    keep, key = Keep(str(tmp_path)), f"{next(NUMBERS):064}"
    furthest = Progress()
    for what in writes:
        stands = keep.write(key, what)
        furthest = what if what.rank > furthest.rank else furthest
        assert stands == keep.read(key) == furthest


def test_the_base_is_the_last_stage_that_passed() -> None:
    assert (Progress().base, Progress().snapshot) == (-1, "")
    stages = (committed("a", "1" * 64), committed("b"))
    assert (Progress(stages=stages).base, Progress(stages=stages).snapshot) == (0, "1" * 64)
    assert Progress(stages=stages[1:]).base == -1


def test_a_restart_goes_forward_and_says_why_until_it_is_made_up() -> None:
    before = Progress(stages=tuple(committed(str(n), str(n) * 64) for n in range(4)))
    back = before.back_to(1, "lost")
    assert back.rank > before.rank
    assert len(back.stages) == 1
    after = back.committed(tuple(committed(str(n), str(n) * 64) for n in range(1, 6)))
    assert [each.note for each in after.stages] == ["", "lost", "lost", "lost", "", ""]
    for stage in (-1, 4):
        with pytest.raises(ValueError, match="not among"):
            before.back_to(stage, "lost")


def test_deliveries_count_until_the_next_commit() -> None:
    twice = Progress(stages=(committed(),)).delivered().delivered()
    assert twice.idle == 2
    assert twice.committed((committed(),)).idle == 0


@pytest.mark.parametrize("url", ["{folder}/blobs", "memory://{name}"])
def test_a_store_of_either_kind(tmp_path: Path, url: str) -> None:
    keep = Keep(url.format(folder=tmp_path, name=tmp_path.name))
    assert keep.read("ab" * 32) == Progress()
    what = Progress(stages=(committed("s", "1" * 64),))
    assert keep.write("ab" * 32, what) == what
    assert keep.read("ab" * 32) == what
    assert keep.address("ab" * 32, "") == ""
    assert keep.address("ab" * 32, "1" * 64) == f"{keep.parts('ab' * 32)}/11/{'1' * 64}"
    keep.drop_parts("ab" * 32)
    assert keep.read("ab" * 32) == what
    keep.drop("ab" * 32)
    assert keep.read("ab" * 32) == Progress()
    keep.drop("ab" * 32)


def test_a_damaged_record_is_as_good_as_none_and_is_written_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep, key = Keep(str(tmp_path)), "cd" * 32
    what = Progress(stages=(committed(),))
    keep.write(key, what)
    path = tmp_path / "progress" / "cd" / key / "record"
    path.write_bytes(path.read_bytes()[:-1])
    assert keep.read(key) == Progress()
    assert "all its stages are run again" in caplog.text
    assert keep.write(key, what) == what == keep.read(key)


def test_only_the_old_is_swept(tmp_path: Path) -> None:
    keep = Keep(str(tmp_path))
    for name in ("ab", "cd"):
        keep.write(name * 32, Progress(stages=(committed(),)))
    record = tmp_path / "progress" / "ab" / ("ab" * 32) / "record"
    written = record.stat().st_mtime
    os.utime(record, (written - 500, written - 500))
    assert keep.sweep(400, written + 50) == 1
    assert keep.read("ab" * 32) == Progress()
    assert keep.read("cd" * 32) != Progress()
    assert keep.sweep(400, written + 50) == 0


def test_a_store_out_of_reach_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    keep = Keep(str(tmp_path / "file"))
    with pytest.raises(BlobError, match="cannot be") as caught:
        keep.write("ab" * 32, Progress(stages=(committed(),)))
    assert "\n" not in str(caught.value)
    with pytest.raises(BlobError, match="TEMPER_BLOBS"):
        Keep("nowhere://x")
