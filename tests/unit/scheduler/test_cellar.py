"""Old snapshots go, the newest whole ones stay, whoever dies at whichever step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.snapshots import SnapshotStored
from services.runtime.blobs import Blobs
from services.scheduler.cellar import Manifest, store_of, tidy, whole
from services.scheduler.retention import needed
from services.scheduler.snapshot import FOLD_VERSION

if TYPE_CHECKING:
    from pathlib import Path

LATER = 10_000.0


def written(blobs: Blobs, seq: int, *, parts: int = 3, fold: int = FOLD_VERSION) -> SnapshotStored:
    refs = tuple(blobs.put(f"part {number} of {seq}".encode()) for number in range(parts))
    manifest = blobs.put(msgspec.json.encode(Manifest(parts=refs)))
    return SnapshotStored(shard=0, epoch=1, seq=seq, journal=seq, fold=fold, manifest=manifest)


def later() -> float:
    return time.time() + LATER


def test_the_newest_stay_and_the_rest_goes(tmp_path: Path) -> None:
    blobs = store_of(Blobs(str(tmp_path)), "p.", 0)
    events = [written(blobs, seq) for seq in range(1, 6)]
    foreign = Blobs(str(tmp_path)).put(b"a payload that is no snapshot's")
    other = store_of(Blobs(str(tmp_path)), "p.", 1).put(b"of another shard")
    for part in range(2):
        blobs.put(f"orphan {part}".encode())  # of one whose writer died before it was announced
    assert tidy(blobs, events, 2) == 0, "what is young stays"
    assert tidy(blobs, events, 2, now=later()) == 3 * 4 + 2
    assert [bool(whole(blobs, event)) for event in events] == [False, False, False, True, True]
    assert tidy(blobs, events, 2, now=later()) == 0
    assert Blobs(str(tmp_path)).get(foreign)
    assert store_of(Blobs(str(tmp_path)), "p.", 1).get(other)


def test_a_damaged_one_or_one_of_another_version_does_not_count(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    good, broken, strange = written(blobs, 1), written(blobs, 2), written(blobs, 3, fold=FOLD_VERSION + 1)
    part = msgspec.json.decode(blobs.get(broken.manifest), type=Manifest).parts[0]
    blobs.remove(part.digest)
    assert tidy(blobs, [good, broken, strange], 1, now=later()) == 0
    assert whole(blobs, good)
    newer = written(blobs, 4)
    assert tidy(blobs, [good, broken, strange, newer], 1, now=later()) == 4 + 3 + 4
    assert whole(blobs, newer)


def test_fewer_than_are_kept_leave_everything(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    events = [written(blobs, 1), written(blobs, 2)]
    blobs.put(b"orphan")
    assert tidy(blobs, events, 3, now=later()) == 0
    assert tidy(blobs, [], 1, now=later()) == 0


SCRIPT = """
import sys, time, msgspec
from schemas.snapshots import SnapshotStored
from services.runtime.blobs import Blobs
from services.scheduler.cellar import tidy
events = msgspec.json.decode(sys.stdin.buffer.read(), type=list[SnapshotStored])
print(tidy(Blobs(sys.argv[1]), events, 2, now=time.time() + 10000.0))
"""


@pytest.mark.parametrize("step", [1, 2, 5, 9, 12])
def test_killed_between_two_removals_the_next_round_ends_it(tmp_path: Path, step: int) -> None:
    blobs = Blobs(str(tmp_path))
    events = [written(blobs, seq) for seq in range(1, 6)]
    environment = os.environ | {"TEMPER_FAULT": f"scheduler:before-tidy:{step}"}
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment,
        input=msgspec.json.encode(events),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    assert all(whole(blobs, event) for event in events[-2:])
    assert tidy(blobs, events, 2, now=later()) == 12 - (step - 1)
    assert len(blobs.listed()) == 2 * 4
    assert all(whole(blobs, event) for event in events[-2:])


def test_two_at_once_remove_the_same_and_no_more(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    events = [written(blobs, seq) for seq in range(1, 30)]
    document = msgspec.json.encode(events)
    both = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.stdin is not None
        process.stdin.write(document)
        process.stdin.close()
    assert [process.wait(60) for process in both] == [0, 0]
    for process in both:
        assert process.stdout is not None
        process.stdout.close()
    assert len(blobs.listed()) == 2 * 4
    assert all(whole(blobs, event) for event in events[-2:])


def test_the_log_is_kept_from_one_entry_before_the_oldest_kept_snapshot(tmp_path: Path) -> None:
    events = [written(Blobs(str(tmp_path)), seq) for seq in (5, 9)]
    assert needed(events, 1, 2) == {"journal/0": 4}
    assert needed(events, 1, 1) == {"journal/0": 8}
    assert needed(events, 1, 3) == {}
    assert needed(events, 2, 1) == {}, "a shard that has been down since it began keeps everything"


def test_a_shard_that_is_down_for_long_holds_the_log_where_it_stands(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))

    def at(shard: int, seq: int) -> SnapshotStored:
        place = {"shard": shard, "shards": 2, "offsets": {"tasks/0": 10 * seq}}
        return msgspec.structs.replace(written(blobs, 100 * shard + seq), journal=seq, **place)

    down = [at(1, 3), at(1, 4)]
    events = [at(0, 3), *down, *(at(0, seq) for seq in range(5, 90))]
    assert needed(events, 2, 2) == {"journal/0": 87, "journal/1": 2, "tasks/0": 30}
